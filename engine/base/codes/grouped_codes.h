#ifndef LOWKEY_ENGINE_BASE_CODES_GROUPED_CODES_H_
#define LOWKEY_ENGINE_BASE_CODES_GROUPED_CODES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/dtype.h"

namespace lowkey {

// A matrix [n_out, n_in] of 4- or 8-bit codes in groups of inputs, as AWQ and GPTQ checkpoints
// store it in three tensors that somebody else owns. Weight (o, i) is
//   scale[g, o] * (code[i, o] - zero[g, o]),   g = GroupOf(i),
// with the stored scale widened to fp32 and one rounding. The tensors may be unaligned; words are
// little-endian and hold eight codes of four bits, or four of eight, the first in the lowest.
//   dtype    codes                                  zeros
//   kAwq4    [n_in, n_out / 8]: eight outputs each  [n_groups, n_out / 8]: eight outputs each
//            in the order 0, 2, 4, 6, 1, 3, 5, 7    in the same order
//   kGptq4   [n_in / 8, n_out]: eight inputs each   [n_groups, n_out / 8]: eight outputs each
//   kGptq8   [n_in / 4, n_out]: four inputs each    [n_groups, n_out / 4]: four outputs each
// Any bits are a code, 0..max_code(). LoadCodes and LoadGroups give a row's codes, zero points
// and scales in logical order, for those who keep them instead of floats.
struct GroupedCodes {
  DType dtype = DType::kAwq4;
  int64_t n_out = 0, n_in = 0;  // multiples of 8
  int64_t group_size = 0;       // > 0; the last group may be shorter
  const std::byte* codes = nullptr;
  const std::byte* zeros = nullptr;
  const std::byte* scales = nullptr;  // [n_groups, n_out] of scale_dtype
  DType scale_dtype = DType::kF16;    // kF16, kBF16 or kF32
  int32_t zero_offset = 0;            // added to every stored zero point: 1 in GPTQ's first version
  // Says whether every zero point of 8 bits is the middle, so that codes are signed numbers.
  bool is_symmetric = false;
  static constexpr int32_t kMiddleOf8Bits = 128;
  // The group of every input, where that is not i / group_size ("act-order"): each group has its
  // group_size inputs, in any places. Empty: groups of neighbors.
  std::vector<int32_t> groups;

  int codes_in_word() const { return static_cast<int>(DTypeBlockSize(dtype)); }
  int bits() const { return 32 / codes_in_word(); }
  uint32_t max_code() const { return (1u << bits()) - 1; }
  int64_t n_groups() const { return (n_in + group_size - 1) / group_size; }
  int64_t GroupOf(int64_t input) const {
    return groups.empty() ? input / group_size : groups[static_cast<size_t>(input)];
  }
};

// Writes the codes of output `row`, one per input, to codes [n_in].
void LoadCodes(const GroupedCodes& matrix, int64_t row, uint8_t* codes);

// Writes the scales and zero points of output `row` to scales [n_groups] and zeros [n_groups].
// A zero point is 0..max_code(), and more by zero_offset.
void LoadGroups(const GroupedCodes& matrix, int64_t row, float* scales, int32_t* zeros);

// Writes the weights of output `row` to out [n_in].
void LoadRow(const GroupedCodes& matrix, int64_t row, float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_CODES_GROUPED_CODES_H_
