#ifndef LOWKEY_ENGINE_KERNELS_KERNELS_H_
#define LOWKEY_ENGINE_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/round_up.h"

namespace lowkey {

enum class CodeFormat;  // coded_weight.h

// The numeric primitives of the CPU, one table per instruction set, chosen once at start.
// Activations are fp32; the right-hand side of a product is fp32, bf16 or int8 (the caller applies
// the scales of int8), and all are multiplied in fp32.
// No function allocates, locks or fails. Pointers need no alignment unless stated.
//
// Every output element is computed by one chain of operations whose order depends on the element's
// own row alone: the same row gives the same bits whatever rows stand beside it.

// kFloat8 is e4m3, which only weights on devices have (narrow_weight.h).
enum class StorageType { kFloat32, kBFloat16, kInt8, kFloat8 };

constexpr int64_t StorageBytes(StorageType t) {
  return t == StorageType::kFloat32 ? 4 : t == StorageType::kBFloat16 ? 2 : 1;
}

// Returns the type of the rows that a device multiplies with weights of a type, and of its cache.
constexpr StorageType RowTypeOf(StorageType weight) {
  return weight == StorageType::kFloat32 ? StorageType::kFloat32 : StorageType::kBFloat16;
}

// LeftLayout says how a product's left-hand side lies in memory.
//  kRows   Row i is at a + i * lda.
//  kTiles  A kernel reads a tile of rows in one stream. The tile that begins at row i is at
//          a + i * lda; its element (row r, step kk) is at kk * tile_rows + r in fp32, and at
//          (kk / run * tile_rows + r) * run + kk % run in bf16, where a run has 2 steps, or
//          kPairSteps for a matrix unit. n_rows rows are cut into NumTiles tiles; with t tiles
//          left, the next one has NextTileRows(rows left, t) rows.
enum class LeftLayout { kRows, kTiles };

// Products of pairs take whole blocks of this many steps, as matrix units do.
inline constexpr int64_t kPairSteps = 32;
inline constexpr int64_t kUnitRows = 16;            // the rows of a matrix unit's tile
inline constexpr int64_t kFewestCodedUnitRows = 8;  // the fewest of its tiles of codes

inline int64_t NumTiles(int64_t n_rows, int64_t max_tile_rows) {
  return DivideUp(n_rows, max_tile_rows);
}
// Tiles are of nearly equal height: 7 rows are 3 + 4, not 6 + 1.
inline int64_t NextTileRows(int64_t rows_left, int64_t tiles_left) {
  return rows_left / tiles_left;
}

// C [n_rows, n_cols] = A [n_rows, k] B [k, n_cols], or C += A B. B lies in panels of panel_columns
// columns; strides and offsets are in elements of what they address.
struct GemmArgs {
  const void* a = nullptr;  // fp32; gemm_bf16_pairs: bf16 where rounds_activations says so
  int64_t lda = 0;          // see LeftLayout
  // Column panel p (columns p * panel_columns ..) begins at b + p * b_panel_stride. Its layout is
  //  Gemm              row kk at + kk * b_row_stride, so that a row-major matrix has b_panel_stride
  //                    == panel_columns, and a packed one b_row_stride == panel_columns;
  //  gemm_bf16_pairs   two successive rows interleaved, [k / 2][panel_columns][2].
  const void* b = nullptr;
  int64_t b_row_stride = 0;
  int64_t b_panel_stride = 0;
  float* c = nullptr;  // row i at c + i * ldc
  int64_t ldc = 0;
  int64_t n_rows = 0;
  int64_t n_cols = 0;  // a multiple of panel_columns
  int64_t k = 0;       // a multiple of kPairSteps for pairs
  enum class Into { kOverwrite, kAccumulate } into = Into::kOverwrite;
  LeftLayout a_layout = LeftLayout::kRows;
  // kTiles: the first step, of lda packed steps; a multiple of kPairSteps for pairs. With kRows `a`
  // points at the first step.
  int64_t k_begin = 0;
};

// Rows in codes of 8 or 16 bits for products with coded weights (coded_weight.h), and numbers of
// each group of a row.
struct CodedRows {
  std::byte* codes = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;      // the scale times the sum of the codes
  int32_t* starts = nullptr;  // minus the sum, times what the table adds to each code of a weight
};

inline constexpr int64_t kMaxCodedChunk = 640;  // steps: a panel's codes stay in L1 beside a tile's

// C [n_rows, n_panels * panel_columns] = A B over steps [k_begin, k_end), added to C unless k_begin
// is 0. Steps begin and end at whole blocks.
struct CodedProductArgs {
  // Rows come in tiles, as in LeftLayout::kTiles. The tile that begins at row i has its codes i *
  // lda codes from the first; (row r, step kk) has the place (kk / side * tile_rows + r) * side +
  // kk % side, where `side` codes have 32 bits. Group g of its row r is at i * (lda / group) +
  // g * tile_rows + r of scales, sums and starts.
  CodedRows a;
  int64_t lda = 0;               // steps in all
  const std::byte* b = nullptr;  // panel p at b + p * b_panel_bytes
  int64_t b_panel_bytes = 0;
  float* c = nullptr;  // row i at c + i * ldc
  int64_t ldc = 0;
  int64_t n_rows = 0, n_panels = 0;
  int64_t k_begin = 0, k_end = 0;
  int64_t chunk = 0;  // steps that are expanded at once: whole blocks, at most kMaxCodedChunk
};

// out [n_cols / panel_columns][k / 2][panel_columns][2] = rows [n_rows, n_cols], where k is n_rows
// rounded up to k_multiple: rows of zeros are added.
struct PackPairsArgs {
  const uint16_t* rows = nullptr;  // row i at rows + i * stride
  int64_t stride = 0;
  int64_t n_rows = 0;
  int64_t n_cols = 0;  // a multiple of panel_columns
  uint16_t* out = nullptr;
  int64_t k_multiple = kPairSteps;  // a multiple of kPairSteps
};

// Memory that the caller reads next: a kernel asks for it while it computes. Any address is fine.
struct ReadNext {
  const void* data = nullptr;
  int64_t size_bytes = 0;
};

// Describes a matrix in codes of 8 bits. Its columns are in groups of 32, the last perhaps of
// fewer, and each row of a group has a scale and a middle. A number is middle + scale * code, a
// multiply-add. Row kk of group g has its codes from codes + g * group_stride + kk * row_stride on.
struct ColumnGroups {
  const int8_t* codes = nullptr;
  int64_t row_stride = 0, group_stride = 0;
  const float* scales = nullptr;  // group g, row kk at scales + g * numbers_stride + kk
  const float* middles = nullptr;
  int64_t numbers_stride = 0;
};

// out [n_rows, n_dots]: out[i][j] += a_i . b_j over `k` elements, a multiple of 32.
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

// out [head_dim, 64] = the columns of x, each a head of one token, rotated in pairs (j, j +
// head_dim / 2) by the angles of cos and sin [head_dim / 2, 64].
struct RotateColumnsArgs {
  const void* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  float* out = nullptr;
  int64_t head_dim = 0;  // even
};

struct ScoreLevelsArgs;  // levels.h
struct ReadLevelsArgs;

// The running softmax of one row: the maximum so far and the sum of exp(score - max).
struct SoftmaxState {
  float max = 0;
  float sum = 0;
};

// PageSlots names tokens [begin, end) of one page, 0 <= begin <= end <= kPageTokens.
struct PageSlots {
  int64_t begin = 0, end = kPageTokens;
};

// WeighRowsArgs are rows with their scores of a page. Hidden scores are -inf.
struct WeighRowsArgs {
  const float* scores = nullptr;   // [n_rows, kPageTokens]
  uint16_t* weights = nullptr;     // [n_rows, kPageTokens], in bf16
  SoftmaxState* states = nullptr;  // [n_rows]
  float* out = nullptr;            // [n_rows, n_values]: sums of values under earlier weights
  int64_t n_values = 0;
  int64_t n_rows = 0;
};

// Rows of the query heads of one KV head read a page: their scores go through weigh_rows, and the
// weights times the values are added to `out`.
// Each array of rows has room for n_rows rounded up to kUnitRows. Rows beyond n_rows get results
// without a meaning; their slots are valid too.
struct AttendPairsArgs {
  const uint16_t* queries = nullptr;   // row r at + r * dim
  int64_t dim = 0;                     // a multiple of kPairSteps, at most kMaxAttendDim
  const uint16_t* keys = nullptr;      // as pack_pairs writes [dim, kPageTokens]
  const uint16_t* values = nullptr;    // as pack_pairs writes [kPageTokens, dim]
  const PageSlots* visible = nullptr;  // [n_rows]; null: all rows see all tokens
  SoftmaxState* states = nullptr;      // [n_rows]
  float* out = nullptr;                // row r at + r * dim
  int64_t n_rows = 0;
};
inline constexpr int64_t kMaxAttendDim = 128;

// The smallest and the largest of the OrderKeys of some numbers (sampling_arithmetic.h).
struct KeyRange {
  int32_t smallest = 0, largest = 0;
};

struct SoftmaxUpdate {
  float factor = 1;  // exp(old max - new max), which scales the sums over earlier scores
  float sum = 0;     // the sum of the weights that the scores became
};

// Products of a row's elements with elements of the same row further on, cyclically:
// out[i][t * n + j] = x[i][j] * x[i][(j + (first + t) * step) % n], the first n_out of each row.
struct TurnedProductsArgs {
  const float* x = nullptr;  // row i is at x + i * ldx, its n elements twice over
  int64_t ldx = 0;
  float* out = nullptr;  // row i at out + i * ld_out
  int64_t ld_out = 0;
  int64_t n_rows = 0;
  int64_t n = 0;
  int64_t first = 0;  // every (first + t) * step is at most n
  int64_t step = 1;
  int64_t n_out = 0;
};

struct KernelTable {
  std::string_view name;      // "avx2"
  int64_t max_tile_rows = 0;  // the most rows of a product's tile
  int64_t panel_columns = 0;  // 2 vectors: 8 (portable), 16 (avx2), 32 (avx512)

  // `next_b` hints at a matrix shaped like B that is multiplied next; nullptr: none follows.
  void (*gemm_f32)(const GemmArgs&, const void* next_b);
  void (*gemm_bf16)(const GemmArgs&, const void* next_b);
  void (*gemm_int8)(const GemmArgs&, const void* next_b);
  // Multiplies few rows by a matrix in column groups; GemmArgs' own B is not read. For many rows
  // the matrix is widened to out [k, n_cols], with which gemm_f32 gives the same bits.
  void (*grouped_gemm)(const GemmArgs&, const ColumnGroups&, const ReadNext&);
  void (*widen_groups)(const ColumnGroups&, int64_t k, int64_t n_cols, float* out);
  // Says whether the CPU has a BF16 dot product: rows of A are rounded to bf16 first and two
  // products are added at once. Elsewhere the weights are widened and everything is fp32.
  bool rounds_activations = false;
  // Says whether a matrix unit multiplies rounded rows: tiles of at most kUnitRows rows, which it
  // adds by blocks of kPairSteps steps (tile_products_inl.h).
  bool has_matrix_unit = false;
  void (*gemm_bf16_pairs)(const GemmArgs&, const void* next_b);
  // Computes gemm_bf16_pairs' product to the bit, for few rows, from B as gemm_bf16 takes it. k is
  // any; where it is odd, a row of A has a zero behind it. Null unless rounds_activations is set.
  void (*gemm_bf16_row_pairs)(const GemmArgs&, const void* next_b) = nullptr;
  // Writes rows in bf16 as gemm_bf16_pairs takes B, panel after panel. Null unless
  // rounds_activations is set.
  void (*pack_pairs)(const PackPairsArgs&) = nullptr;
  // Multiplies bf16 rows by numbers rounded to bf16, which widen_group_pairs writes as pack_pairs
  // does; with them gemm_bf16_pairs gives the same bits. k is even. Both are null unless
  // rounds_activations is set.
  void (*grouped_gemm_pairs)(const GemmArgs&, const ColumnGroups&, const ReadNext&) = nullptr;
  void (*widen_group_pairs)(const ColumnGroups&, int64_t k, int64_t n_cols,
                            uint16_t* out) = nullptr;
  // Codes a row x [n] for a format, its codes in order; see coded_weight.h for both.
  void (*code_row)(CodeFormat format, const float* x, int64_t n, const CodedRows& out);
  void (*multiply_codes)(CodeFormat format, const CodedProductArgs&);
  // Computes multiply_codes' product to the bit, for groups of at least 32 steps, by a matrix unit.
  // Tiles have kFewestCodedUnitRows to kUnitRows rows, and their codes lie by groups: group g's
  // codes of 8 bits are at g * tile_rows * group, [tile_rows][group]. Of codes of 16 bits it has
  // twice as many bytes: the upper halves in signed bytes, then the lower ones in unsigned bytes.
  // Null unless has_matrix_unit.
  void (*multiply_codes_in_tiles)(CodeFormat format, const CodedProductArgs&) = nullptr;
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
  // Rotates x [n_heads, head_dim] in place, pairs (j, j + head_dim / 2); cos, sin [head_dim / 2].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t n_heads, int64_t head_dim);
  void (*rotate_columns_f32)(const RotateColumnsArgs&);
  void (*rotate_columns_bf16)(const RotateColumnsArgs&);
  // Updates a row's online softmax: scores [n] (n a multiple of 16, hidden ones -inf, at least one
  // of all updates finite) become exp(score - new max). The first state is max = -inf, sum = 0.
  SoftmaxUpdate (*softmax_update)(float* scores, int64_t n, SoftmaxState* state);
  // Does what softmax_update does for each row, with weights to 1e-5 of its weights: they are
  // rounded to bf16, and the rounded ones added to the sum, so that a mean of equal values is that
  // value. Scales `out` by the factor. Null unless rounds_activations is set.
  void (*weigh_rows)(const WeighRowsArgs&) = nullptr;
  // Computes to the bit what gemm_bf16_pairs and weigh_rows compute. Null unless has_matrix_unit.
  void (*attend_pairs)(const AttendPairsArgs&) = nullptr;
  // out [n, 16] = the largest of every 16th element of each row of x [n, 256]; a NaN is left out
  // unless it comes first.
  void (*lane_maxima)(const float* x, int64_t n, float* out);
  KeyRange (*key_range)(const float* x, int64_t n);  // n >= 1
  // Writes the indices of the elements of x [n] that are not less than `least` (NaN is not) into
  // out [n], ascending, and returns their number.
  int64_t (*find_not_below)(const float* x, int64_t n, float least, int32_t* out);
  // Turns a row's scores s [n] (n a multiple of 16) into TaylorShift's weights: 1 + s + s^2 / 2,
  // and 0 from n_visible on. Returns their sum.
  float (*taylor_weights)(float* scores, int64_t n_visible, int64_t n);
  void (*turned_products)(const TurnedProductsArgs&);
  // Rounds to nearest even; NaN stays NaN.
  void (*to_bf16)(const float* x, uint16_t* out, int64_t n);
  // Unpacks n codes of 2, 3 or 4 bits to int8, less half of their range. In x, codes of 4 bits have
  // n / 2 bytes: the first half of out [n] has their low bits, the second half their high bits.
  // Codes of 2 bits have n / 4 bytes: the first quarter has the lowest bits, and so on. Codes of 3
  // bits have their lower two bits so, and then their highest bit in n / 8 bytes: the first eighth
  // of out has the lowest bits. n is a multiple of 8.
  void (*unpack_codes)(int bits, const uint8_t* x, int8_t* out, int64_t n);
  // Widens codes of 4 bits: out = middles + scales * codes, all [n], n a multiple of panel_columns
  // and scales and middles in bf16.
  void (*widen_int4)(const uint8_t* x, const uint16_t* scales, const uint16_t* middles, float* out,
                     int64_t n);
  void (*score_levels)(const ScoreLevelsArgs&);
  void (*read_levels)(const ReadLevelsArgs&);

  // In double, with the same bits on every instruction set: y += a * x; y += a0 * x0 + a1 * x1; and
  // the rotation (x, y) = (c * x - s * y, s * x + c * y). All [n].
  void (*add_scaled_f64)(double a, const double* x, double* y, int64_t n);
  void (*add_two_scaled_f64)(double a0, const double* x0, double a1, const double* x1, double* y,
                             int64_t n);
  void (*rotate_f64)(double c, double s, double* x, double* y, int64_t n);

  // Measure the machine's limits, for benchmarks: panel_columns * 5 * n multiply-adds on registers
  // alone; a sum of x [n] (a multiple of 8 * panel_columns) that reads as fast as the machine can.
  float (*fma_chains)(int64_t n);
  float (*read_sum)(const float* x, int64_t n);

  void Gemm(StorageType b_type, const GemmArgs& args, const void* next_b = nullptr) const {
    (b_type == StorageType::kFloat32    ? gemm_f32
     : b_type == StorageType::kBFloat16 ? gemm_bf16
                                        : gemm_int8)(args, next_b);
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

// The best table that this CPU runs, or the one that the environment variable LOWKEY_ISA names.
// Chosen at the first call, which ends the program where CheckIsa (isa.h) is not OK.
const KernelTable& Kernels();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_KERNELS_H_
