#ifndef LOWKEY_ENGINE_KERNELS_NARROW_WEIGHT_H_
#define LOWKEY_ENGINE_KERNELS_NARROW_WEIGHT_H_

// Weights of 8 bits: a number is its code times a scale that it shares with others of its row.
//   kInt8    has codes -127..127 and a scale for every 64 inputs;
//   kFloat8  has codes e4m3 (OCP 8-bit floating point 1.0: bias 7, subnormals, at most 448, no
//            infinities) and a scale for the row.
// A scale is in bf16: the largest magnitude that shares it, divided by the largest code. Codes are
// rounded to nearest. A number that is not finite makes every number of its scale NaN; numbers that
// are all below 1e-35 become 0.
//
// On a device a weight [n_out, n_in] is
//   codes [n_out][blocks of 64]: input k of a row is at NarrowPlace(k), zeros follow n_in
//   scales [ScalesOfRow][n_out rounded up to 8]

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/tensor.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

inline constexpr int64_t kNarrowBlock = 64;  // inputs

constexpr bool IsNarrow(StorageType type) { return StorageBytes(type) == 1; }
constexpr int64_t NarrowBlocks(int64_t n_in) { return (n_in + kNarrowBlock - 1) / kNarrowBlock; }
constexpr int64_t ScalesOfRow(StorageType type, int64_t n_in) {
  return type == StorageType::kInt8 ? NarrowBlocks(n_in) : 1;
}

// Returns the byte of a row that holds the code of input k. A thread multiplies 16 bytes at a time:
// eight successive k of each half of a block. Of every four the middle two are exchanged, so that
// a word's odd bytes are two successive k, and its even bytes too.
constexpr int64_t NarrowPlace(int64_t k) {
  const int64_t in_block = k % kNarrowBlock, sixteen = in_block % 32 / 8, of_four = k % 4;
  const int64_t exchanged = of_four == 1 ? 2 : of_four == 2 ? 1 : of_four;
  return k - in_block + 16 * sixteen + in_block / 32 * 8 + k % 8 / 4 * 4 + exchanged;
}

struct NarrowLayout {
  StorageType type = StorageType::kInt8;
  int64_t n_out = 0, n_in = 0;

  constexpr int64_t row_bytes() const { return NarrowBlocks(n_in) * kNarrowBlock; }
  constexpr int64_t scales_at() const { return n_out * row_bytes(); }  // bytes
  constexpr int64_t ld_scales() const { return (n_out + 7) / 8 * 8; }
  constexpr int64_t size_bytes() const {
    return scales_at() + ScalesOfRow(type, n_in) * ld_scales() * 2;
  }
};

// Returns the bytes of a weight of any type on a device.
constexpr int64_t WeightBytes(StorageType type, int64_t n_out, int64_t n_in) {
  return IsNarrow(type) ? NarrowLayout{type, n_out, n_in}.size_bytes()
                        : n_out * n_in * StorageBytes(type);
}

// Rounds to nearest, ties to even, at most 448; NaN stays NaN.
uint8_t ToFloat8(float x);
float Float8ToFloat(uint8_t code);

// Writes a row's codes [row.size()] in order, and its scales [ScalesOfRow] ld_scales apart.
void NarrowRow(absl::Span<const float> row, StorageType type, uint8_t* codes, uint16_t* scales,
               int64_t ld_scales);

// Rows first .. first + n_rows - 1 of a matrix, which outlives this; zeros where it is nullptr.
struct RowRange {
  const TensorView* matrix = nullptr;
  int64_t first = 0, n_rows = 0;
};

// Writes rows [first, end) of `parts` (of n_in columns each, any dtype that LoadRow reads), stacked
// along n_out, to their places in `weight`, which begins as layout.size_bytes() zeros. Threads may
// write different rows at once.
struct NarrowRange {
  int64_t first = 0, end = 0;
};
void NarrowRows(absl::Span<const RowRange> parts, const NarrowLayout& layout, NarrowRange rows,
                std::byte* weight);

// Writes the numbers of row `row` of a weight to out [n_in]; exact.
void WidenRow(const NarrowLayout& layout, const std::byte* weight, int64_t row, float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_NARROW_WEIGHT_H_
