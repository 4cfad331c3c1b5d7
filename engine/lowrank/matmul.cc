#include "engine/lowrank/matmul.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Sizes of the packed blocks: a strip of b [kDepth, tile columns] stays in L1, a block of a
// [kBlockRows, kDepth] in L2, the block of b [kDepth, kBlockCols] in L2 or L3. Every table's
// max_tile_rows divides kBlockRows, its panel_columns kBlockCols.
constexpr int64_t kDepth = 256;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockCols = 512;
constexpr int64_t kMaxTile = 12 * 32;

// Packs x(i, p), i < n_lines, p < k, as strips of `width` lines: strip s holds, for each p, lines s
// * width .. s * width + width - 1; lines past the end are zero.
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

// A block of c, and the steps of the product that are added to it.
struct Block {
  int64_t row = 0, n_rows = 0, col = 0, n_cols = 0, k = 0;
};

void MultiplyBlock(const Block& block, const float* packed_a, const float* packed_b,
                   const MatmulOptions& options, const MatmulOutput& c) {
  const KernelTable& kernels = *options.kernels;
  const int64_t tile_rows = kernels.max_tile_rows, tile_cols = kernels.panel_columns;
  alignas(64) float tile[kMaxTile];
  for (int64_t j = 0; j < block.n_cols; j += tile_cols) {
    const int64_t n = std::min(tile_cols, block.n_cols - j);
    for (int64_t i = 0; i < block.n_rows; i += tile_rows) {
      const int64_t m = std::min(tile_rows, block.n_rows - i);
      const bool above_diagonal = block.row + i + m <= block.col + j;
      if (options.lower_only && above_diagonal) continue;
      GemmArgs product{packed_a + i * block.k,
                       block.k,
                       packed_b + j * block.k,
                       tile_cols,
                       0,
                       tile,
                       tile_cols,
                       tile_rows,
                       tile_cols,
                       block.k};
      product.a_layout = LeftLayout::kTiles;
      kernels.Gemm(StorageType::kFloat32, product);
      for (int64_t ti = 0; ti < m; ++ti) {
        float* out = c.data + (block.row + i + ti) * c.stride + block.col + j;
        const float* in = tile + ti * tile_cols;
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

void Matmul(const MatmulShape& shape, const MatmulOperand& a, const MatmulOperand& b,
            const MatmulOptions& options, const MatmulOutput& c, std::vector<float>& pack) {
  if (shape.k == 0 && !options.accumulate) FillZero(shape, c);
  const int64_t tile_rows = options.kernels->max_tile_rows;
  const int64_t tile_cols = options.kernels->panel_columns;
  LK_CHECK(tile_rows * tile_cols <= kMaxTile && kBlockRows % tile_rows == 0);
  pack.resize(kDepth * (kBlockRows + kBlockCols));
  float* packed_a = pack.data();
  float* packed_b = packed_a + kDepth * kBlockRows;
  for (int64_t col = 0; col < shape.n; col += kBlockCols) {
    const int64_t n_cols = std::min(kBlockCols, shape.n - col);
    for (int64_t p = 0; p < shape.k; p += kDepth) {
      const int64_t k = std::min(kDepth, shape.k - p);
      Pack({n_cols, k, tile_cols}, b.data + p * b.row_stride + col * b.col_stride, b.col_stride,
           b.row_stride, packed_b);
      MatmulOptions step = options;
      step.accumulate = options.accumulate || p > 0;
      for (int64_t row = 0; row < shape.m; row += kBlockRows) {
        const int64_t n_rows = std::min(kBlockRows, shape.m - row);
        if (options.lower_only && row + n_rows <= col) continue;
        Pack({n_rows, k, tile_rows}, a.data + row * a.row_stride + p * a.col_stride, a.row_stride,
             a.col_stride, packed_a);
        MultiplyBlock({row, n_rows, col, n_cols, k}, packed_a, packed_b, step, c);
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
