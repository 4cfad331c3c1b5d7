#ifndef LOWKEY_ENGINE_KERNELS_KERNELS_H_
#define LOWKEY_ENGINE_KERNELS_KERNELS_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace lowkey {

// The numeric primitives of the CPU, one table per instruction set, chosen once at start.
// Activations are fp32; the right-hand side of a product is fp32, bf16 or int8 (whose scales are
// the caller's), all multiplied in fp32.
// No function allocates, locks or fails. Pointers need no alignment unless stated.
//
// Every output element is computed by one chain of operations whose order depends on the element's
// own row alone: the same row gives the same bits whatever rows stand beside it.

// kFloat8: e4m3, of weights on devices (narrow_weight.h).
enum class StorageType { kFloat32, kBFloat16, kInt8, kFloat8 };

constexpr int64_t StorageBytes(StorageType t) {
  return t == StorageType::kFloat32 ? 4 : t == StorageType::kBFloat16 ? 2 : 1;
}

// What rows that meet a device's weights of a type, and the cache beside them, are stored as.
constexpr StorageType RowTypeOf(StorageType weight) {
  return weight == StorageType::kFloat32 ? StorageType::kFloat32 : StorageType::kBFloat16;
}

// How a product's left-hand side lies in memory.
//  kRows   row i at a + i * lda.
//  kTiles  rows in tiles that a kernel reads in one stream: the tile that begins at row i is at a +
//  i * lda, its element (row r, step kk) at
//          kk * tile_rows + r for fp32 and at (kk / 2 * tile_rows + r) * 2 + kk % 2 for bf16.
//          n_rows rows are cut into NumTiles tiles; t tiles before the end, NextTileRows(rows left,
//          t) rows are taken.
enum class LeftLayout { kRows, kTiles };

inline int64_t NumTiles(int64_t n_rows, int64_t max_tile_rows) {
  return (n_rows + max_tile_rows - 1) / max_tile_rows;
}
// Tiles of nearly equal height: 7 rows are 3 + 4, not 6 + 1.
inline int64_t NextTileRows(int64_t rows_left, int64_t tiles_left) {
  return rows_left / tiles_left;
}

// C [n_rows, n_cols] = A [n_rows, k] B [k, n_cols], or C += A B.
struct GemmArgs {
  const float* a = nullptr;  // row i at a + i * lda
  int64_t lda = 0;
  // Column panel p (columns p * panel_columns ..) at b + p * b_panel_stride, its row kk at + kk *
  // b_row_stride; both strides in elements. A packed weight has b_row_stride == panel_columns; a
  // row-major matrix has b_panel_stride == panel_columns.
  const void* b = nullptr;
  int64_t b_row_stride = 0;
  int64_t b_panel_stride = 0;
  float* c = nullptr;  // row i at c + i * ldc
  int64_t ldc = 0;
  int64_t n_rows = 0;
  int64_t n_cols = 0;  // a multiple of panel_columns
  int64_t k = 0;
  enum class Into { kOverwrite, kAccumulate } into = Into::kOverwrite;
  LeftLayout a_layout = LeftLayout::kRows;
  int64_t k_begin = 0;  // kTiles: the first step, of lda steps packed; with kRows `a` points at it
  // A matrix shaped like B that is multiplied with next, brought into the cache meanwhile: any
  // address, only hinted at. nullptr: nothing follows.
  const void* next_b = nullptr;
};

// C += A B like Gemm, to the same bits, for few rows and a narrow B in int8 whose columns come in
// groups of 32, the last perhaps of fewer: group g is multiplied with a left-hand side of its own.
struct GroupedGemmArgs {
  const float* a = nullptr;  // row i of group g at a + g * a_group + i * lda
  int64_t lda = 0;
  int64_t a_group = 0;
  const int8_t* b = nullptr;  // row kk of group g at b + g * b_group + kk * b_row_stride
  int64_t b_row_stride = 0;
  int64_t b_group = 0;
  float* c = nullptr;  // row i at c + i * ldc
  int64_t ldc = 0;
  int64_t n_rows = 0;  // any
  int64_t n_cols = 0;  // a multiple of panel_columns
  int64_t k = 0;
  // What is read next, brought into the cache meanwhile: any address, only hinted at.
  const void* next = nullptr;
  int64_t next_bytes = 0;
};

// out [n_rows, n_dots]: out[i][j] += a_i . b_j over `k` elements (a multiple of 32).
struct DotRowsArgs {
  const float* a = nullptr;  // row i at a + i * lda
  int64_t lda = 0;
  const void* b = nullptr;  // row j at b + j * k
  float* out = nullptr;     // row i at out + i * ld_out
  int64_t ld_out = 0;
  int64_t n_rows = 0;
  int64_t n_dots = 0;
  int64_t k = 0;
};

// out [head_dim, 64]: the columns of x, each a head of one token, rotated in pairs (j, j + head_dim
// / 2) by angles of cos and sin [head_dim / 2, 64].
struct RotateColumnsArgs {
  const void* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  float* out = nullptr;
  int64_t head_dim = 0;  // even
};

// Running softmax of one row: the maximum so far and the sum of exp(score - max).
struct SoftmaxState {
  float max = 0;
  float sum = 0;
};

struct SoftmaxUpdate {
  float factor = 1;  // exp(old max - new max): for what was accumulated before
  float sum = 0;     // of the scores just turned into weights
};

// C [n_rows, n_cols] = A B over k, B a packed bf16 weight: panel p at b + p * b_panel_stride, two
// successive rows of B interleaved, [k / 2][panel_columns][2]. A is fp32 or bf16 as
// KernelTable::rounds_activations says.
struct GemmPairsArgs {
  const void* a = nullptr;  // row i at a + i * lda elements
  int64_t lda = 0;
  const uint16_t* b = nullptr;
  int64_t b_panel_stride = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t n_rows = 0;
  int64_t n_cols = 0;  // a multiple of panel_columns
  int64_t k = 0;       // even
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
  LeftLayout a_layout = LeftLayout::kRows;
  int64_t k_begin = 0;  // even
  // k * panel_columns elements that are multiplied with next, brought into the cache meanwhile: any
  // address, only hinted at. nullptr: nothing follows.
  const uint16_t* next_b = nullptr;
};

// C [n_rows, n_cols] = A B over k, B a packed int8 weight: of panel p, at b + p * b_panel_stride, a
// block for every 64 steps, which is scales [panel_columns] in bf16, then codes
// [64][panel_columns]. A block's products are summed, then added by its scale.
struct GemmBlocksArgs {
  static constexpr int64_t kBlock = 64;
  const float* a = nullptr;  // as LeftLayout::kTiles packs rows of lda steps
  int64_t lda = 0;
  const std::byte* b = nullptr;
  int64_t b_panel_stride = 0;  // bytes
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t n_rows = 0;
  int64_t n_cols = 0;  // a multiple of panel_columns
  int64_t k = 0;       // of the last block perhaps only the first steps
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
  static constexpr LeftLayout a_layout = LeftLayout::kTiles;
  int64_t k_begin = 0;  // a multiple of kBlock, where b begins
};

// Products of rows' elements with elements of the same row further on, round and round: out[i][t *
// n + j] = x[i][j] * x[i][(j + (first + t) * step) % n], the first n_out of them in a row.
struct TurnedProductsArgs {
  const float* x = nullptr;  // row i, its n elements twice over, at x + i * ldx
  int64_t ldx = 0;
  float* out = nullptr;  // row i at out + i * ld_out
  int64_t ld_out = 0;
  int64_t n_rows = 0;
  int64_t n = 0;
  int64_t first = 0;  // every turn (first + t) * step is at most n
  int64_t step = 1;
  int64_t n_out = 0;
};

struct KernelTable {
  std::string_view name;      // "avx2"
  int64_t max_tile_rows = 0;  // of a product's tiles
  int64_t panel_columns = 0;  // 2 vectors: 8 (portable), 16 (avx2), 32 (avx512)

  void (*gemm_f32)(const GemmArgs&);
  void (*gemm_bf16)(const GemmArgs&);
  void (*gemm_int8)(const GemmArgs&);
  void (*grouped_gemm_int8)(const GroupedGemmArgs&);
  // Where the CPU has a BF16 dot product, rows of A are rounded to bf16 first and two products are
  // added at once; elsewhere the weights are widened and everything is fp32.
  bool rounds_activations = false;
  void (*gemm_bf16_pairs)(const GemmPairsArgs&);
  void (*gemm_int8_blocks)(const GemmBlocksArgs&);
  void (*dot_rows_f32)(const DotRowsArgs&);
  void (*dot_rows_bf16)(const DotRowsArgs&);
  void (*dot_rows_int8)(const DotRowsArgs&);

  // out = x / sqrt(mean(x^2) + eps) * w, all [dim]; out may be x.
  void (*rms_norm)(const float* x, const float* w, float eps, float* out, int64_t dim);
  // out = silu(gate) * up, all [n]; out may alias either.
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n);
  // y += x, both [n].
  void (*add)(const float* x, float* y, int64_t n);
  // x *= s, x [n].
  void (*scale)(float s, float* x, int64_t n);
  // out = x * y, all [n], y in bf16.
  void (*multiply_bf16)(const float* x, const uint16_t* y, float* out, int64_t n);
  // Rotates x [n_heads, head_dim] in place, pairs (j, j + head_dim / 2); cos, sin [head_dim / 2].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t n_heads, int64_t head_dim);
  void (*rotate_columns_f32)(const RotateColumnsArgs&);
  void (*rotate_columns_bf16)(const RotateColumnsArgs&);
  // One online-softmax update of a row: scores [n] (n a multiple of 16, hidden ones -inf, at least
  // one of all updates finite) become exp(score - new max). Start with max = -inf, sum = 0.
  SoftmaxUpdate (*softmax_update)(float* scores, int64_t n, SoftmaxState* state);
  // out [n, 16]: the largest of every 16th element of each 256 of x [n, 256], NaN left out but
  // where it comes first.
  void (*lane_maxima)(const float* x, int64_t n, float* out);
  // Indices of those of x [n] that are not less than `least` (NaN is not), ascending, into out [n];
  // returns how many.
  int64_t (*find_not_below)(const float* x, int64_t n, float least, int32_t* out);
  // TaylorShift's weights of a row: scores s [n] (n a multiple of 16) become 1 + s + s^2 / 2 where
  // visible, 0 from n_visible on. Returns their sum.
  float (*taylor_weights)(float* scores, int64_t n_visible, int64_t n);
  void (*turned_products)(const TurnedProductsArgs&);
  // Round to nearest even; NaN stays NaN.
  void (*to_bf16)(const float* x, uint16_t* out, int64_t n);
  // Codes of 4 bits as int8, less 8: out [n] from x [n / 2], the first half of out from the bytes'
  // low bits, the second from their high ones.
  void (*unpack_int4)(const uint8_t* x, int8_t* out, int64_t n);

  // For benchmarks: the machine's limits. panel_columns * 5 * n multiply-adds on registers alone; a
  // sum of x [n] (a multiple of 8 * panel_columns) that reads as fast as the machine can.
  float (*fma_chains)(int64_t n);
  float (*read_sum)(const float* x, int64_t n);

  void Gemm(StorageType b_type, const GemmArgs& args) const {
    (b_type == StorageType::kFloat32    ? gemm_f32
     : b_type == StorageType::kBFloat16 ? gemm_bf16
                                        : gemm_int8)(args);
  }
  void DotRows(StorageType b_type, const DotRowsArgs& args) const {
    (b_type == StorageType::kFloat32    ? dot_rows_f32
     : b_type == StorageType::kBFloat16 ? dot_rows_bf16
                                        : dot_rows_int8)(args);
  }
  void RotateColumns(StorageType x_type, const RotateColumnsArgs& args) const {
    (x_type == StorageType::kFloat32 ? rotate_columns_f32 : rotate_columns_bf16)(args);
  }
};

// The best table that this CPU runs, or the one that the environment variable LOWKEY_ISA names
// ("portable", "avx2", "avx512", "avx512_bf16") if the CPU has it. Chosen at the first call.
const KernelTable& Kernels();

// Every table that this CPU runs, for tests and benchmarks: two portable ones first (the second,
// "portable_bf16", rounds activations like avx512_bf16 and shares its source), then from narrow to
// wide.
std::vector<const KernelTable*> AvailableKernels();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_KERNELS_H_
