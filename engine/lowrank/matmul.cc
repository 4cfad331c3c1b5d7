#include "engine/lowrank/matmul.h"

#include <algorithm>

#include "engine/base/status_macros.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lowkey {
namespace {

// Sizes of the packed blocks: a strip of b [kDepth, tile columns] stays in L1, a block of a
// [kBlockRows, kDepth] in L2, the block of b [kDepth, kBlockCols] in L2 or L3.
constexpr int64_t kDepth = 256;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockCols = 512;
constexpr int64_t kMaxTile = 12 * 32;

// tile [rows, cols] = a strip [k, rows] transposed times b strip [k, cols].
using TileFunction = void (*)(int64_t k, const float* a, const float* b, float* tile);

struct Kernel {
  int64_t rows = 0;  // divides kBlockRows
  int64_t cols = 0;  // divides kBlockCols
  TileFunction tile = nullptr;
};

void PortableTile(int64_t k, const float* a, const float* b, float* tile) {
  constexpr int kRows = 4, kCols = 8;
  float sum[kRows][kCols] = {};
  for (int64_t p = 0; p < k; ++p) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kCols; ++j) sum[i][j] += a[p * kRows + i] * b[p * kCols + j];
    }
  }
  std::copy_n(&sum[0][0], kRows * kCols, tile);
}

#if defined(__x86_64__)
// Every loop over the rows is unrolled, or the sums would live in memory.
__attribute__((target("avx2,fma"))) void Avx2Tile(int64_t k, const float* a, const float* b,
                                                  float* tile) {
  constexpr int kRows = 6;
  __m256 sum[kRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  for (int64_t p = 0; p < k; ++p) {
    const __m256 b0 = _mm256_loadu_ps(b + p * 16);
    const __m256 b1 = _mm256_loadu_ps(b + p * 16 + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + p * kRows + i);
      sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(tile + i * 16, sum[i][0]);
    _mm256_storeu_ps(tile + i * 16 + 8, sum[i][1]);
  }
}

__attribute__((target("avx512f"))) void Avx512Tile(int64_t k, const float* a, const float* b,
                                                   float* tile) {
  constexpr int kRows = 12;
  __m512 sum[kRows][2];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (int64_t p = 0; p < k; ++p) {
    const __m512 b0 = _mm512_loadu_ps(b + p * 32);
    const __m512 b1 = _mm512_loadu_ps(b + p * 32 + 16);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const __m512 x = _mm512_set1_ps(a[p * kRows + i]);
      sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
      sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    _mm512_storeu_ps(tile + i * 32, sum[i][0]);
    _mm512_storeu_ps(tile + i * 32 + 16, sum[i][1]);
  }
}
#endif

Kernel KernelOf(MatmulKernel kernel) {
#if defined(__x86_64__)
  if (kernel == MatmulKernel::kAvx512) return {12, 32, Avx512Tile};
  if (kernel == MatmulKernel::kAvx2) return {6, 16, Avx2Tile};
#endif
  (void)kernel;
  return {4, 8, PortableTile};
}

Kernel BestKernel() {
  for (MatmulKernel kernel : {MatmulKernel::kAvx512, MatmulKernel::kAvx2}) {
    if (MatmulKernelSupported(kernel)) return KernelOf(kernel);
  }
  return KernelOf(MatmulKernel::kPortable);
}

Kernel& CurrentKernel() {
  thread_local Kernel kernel = BestKernel();
  return kernel;
}

// Packs x(i, p), i < n_lines, p < k, as strips of `width` lines: strip s holds, for each p, lines
// s * width .. s * width + width - 1; lines past the end are zero.
struct PackShape {
  int64_t n_lines = 0, k = 0, width = 0;
};
void Pack(const PackShape& shape, const float* x, int64_t line_stride, int64_t k_stride,
          float* out) {
  for (int64_t first = 0; first < shape.n_lines; first += shape.width) {
    const int64_t n = std::min(shape.width, shape.n_lines - first);
    for (int64_t p = 0; p < shape.k; ++p) {
      const float* from = x + first * line_stride + p * k_stride;
      if (line_stride == 1) {
        std::copy_n(from, n, out);
      } else {
        for (int64_t i = 0; i < n; ++i) out[i] = from[i * line_stride];
      }
      std::fill(out + n, out + shape.width, 0.0f);
      out += shape.width;
    }
  }
}

// Where a block of c lies.
struct Block {
  int64_t row = 0, n_rows = 0, col = 0, n_cols = 0, k = 0;
};

void MultiplyBlock(const Kernel& kernel, const Block& block, const float* packed_a,
                   const float* packed_b, const MatmulOptions& options, const MatmulOutput& c) {
  alignas(64) float tile[kMaxTile];
  for (int64_t j = 0; j < block.n_cols; j += kernel.cols) {
    const int64_t n = std::min(kernel.cols, block.n_cols - j);
    for (int64_t i = 0; i < block.n_rows; i += kernel.rows) {
      const int64_t m = std::min(kernel.rows, block.n_rows - i);
      const bool above_diagonal = block.row + i + m <= block.col + j;
      if (options.lower_only && above_diagonal) continue;
      kernel.tile(block.k, packed_a + i * block.k, packed_b + j * block.k, tile);
      for (int64_t ti = 0; ti < m; ++ti) {
        float* out = c.data + (block.row + i + ti) * c.stride + block.col + j;
        const float* in = tile + ti * kernel.cols;
        if (options.accumulate) {
          for (int64_t tj = 0; tj < n; ++tj) out[tj] += options.alpha * in[tj];
        } else {
          for (int64_t tj = 0; tj < n; ++tj) out[tj] = options.alpha * in[tj];
        }
      }
    }
  }
}

void FillZero(const MatmulShape& shape, const MatmulOutput& c) {
  for (int64_t i = 0; i < shape.m; ++i) std::fill_n(c.data + i * c.stride, shape.n, 0.0f);
}

}  // namespace

bool MatmulKernelSupported(MatmulKernel kernel) {
#if defined(__x86_64__)
  if (kernel == MatmulKernel::kAvx512) return __builtin_cpu_supports("avx512f");
  if (kernel == MatmulKernel::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
#endif
  return kernel == MatmulKernel::kPortable;
}

void UseMatmulKernelForTest(MatmulKernel kernel) {
  LK_CHECK(MatmulKernelSupported(kernel));
  CurrentKernel() = KernelOf(kernel);
}

void Matmul(const MatmulShape& shape, const MatmulOperand& a, const MatmulOperand& b,
            const MatmulOptions& options, const MatmulOutput& c, std::vector<float>& pack) {
  if (shape.k == 0 && !options.accumulate) FillZero(shape, c);
  const Kernel kernel = CurrentKernel();
  pack.resize(kDepth * (kBlockRows + kBlockCols));
  float* packed_a = pack.data();
  float* packed_b = packed_a + kDepth * kBlockRows;
  for (int64_t col = 0; col < shape.n; col += kBlockCols) {
    const int64_t n_cols = std::min(kBlockCols, shape.n - col);
    for (int64_t p = 0; p < shape.k; p += kDepth) {
      const int64_t k = std::min(kDepth, shape.k - p);
      Pack({n_cols, k, kernel.cols}, b.data + p * b.row_stride + col * b.col_stride, b.col_stride,
           b.row_stride, packed_b);
      MatmulOptions step = options;
      step.accumulate = options.accumulate || p > 0;
      for (int64_t row = 0; row < shape.m; row += kBlockRows) {
        const int64_t n_rows = std::min(kBlockRows, shape.m - row);
        if (options.lower_only && row + n_rows <= col) continue;
        Pack({n_rows, k, kernel.rows}, a.data + row * a.row_stride + p * a.col_stride, a.row_stride,
             a.col_stride, packed_a);
        MultiplyBlock(kernel, {row, n_rows, col, n_cols, k}, packed_a, packed_b, step, c);
      }
    }
  }
}

void MirrorLower(int64_t n, float* c) {
  constexpr int64_t kTile = 16;  // both sides of a tile stay in L1
  for (int64_t i0 = 0; i0 < n; i0 += kTile) {
    for (int64_t j0 = 0; j0 <= i0; j0 += kTile) {
      for (int64_t i = i0; i < std::min(i0 + kTile, n); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTile, i); ++j) c[j * n + i] = c[i * n + j];
      }
    }
  }
}

}  // namespace lowkey
