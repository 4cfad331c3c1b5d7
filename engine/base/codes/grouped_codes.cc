#include "engine/base/codes/grouped_codes.h"

#include <cstring>

#include "engine/base/tensor.h"

namespace lowkey {
namespace {

// The place of each of eight outputs in a word of AWQ.
constexpr int kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t WordAt(const std::byte* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + static_cast<size_t>(index) * sizeof(word), sizeof(word));
  return word;
}

// Returns the bits below an output's code in a word of several outputs.
int ShiftOfOutput(const GroupedCodes& m, int64_t row) {
  const int in_word = static_cast<int>(row % m.codes_in_word());
  return m.bits() * (m.dtype == DType::kAwq4 ? kAwqPlaces[in_word] : in_word);
}

}  // namespace

void LoadCodes(const GroupedCodes& m, int64_t row, uint8_t* codes) {
  const int in_word = m.codes_in_word(), bits = m.bits();
  const uint32_t mask = m.max_code();
  if (m.dtype == DType::kAwq4) {
    const int shift = ShiftOfOutput(m, row);
    const int64_t n_words = m.n_out / in_word;
    for (int64_t i = 0; i < m.n_in; ++i) {
      codes[i] = static_cast<uint8_t>(WordAt(m.codes, i * n_words + row / in_word) >> shift & mask);
    }
    return;
  }
  for (int64_t w = 0; w < m.n_in / in_word; ++w) {
    const uint32_t word = WordAt(m.codes, w * m.n_out + row);
    for (int j = 0; j < in_word; ++j) {
      codes[in_word * w + j] = static_cast<uint8_t>(word >> (bits * j) & mask);
    }
  }
}

void LoadGroups(const GroupedCodes& m, int64_t row, float* scales, int32_t* zeros) {
  const TensorView all_scales{m.scale_dtype, {m.n_groups(), m.n_out}, m.scales};
  const int shift = ShiftOfOutput(m, row);
  const int64_t n_words = m.n_out / m.codes_in_word();
  for (int64_t g = 0; g < m.n_groups(); ++g) {
    LoadFloats(all_scales, g * m.n_out + row, 1, scales + g);
    const uint32_t word = WordAt(m.zeros, g * n_words + row / m.codes_in_word());
    zeros[g] = static_cast<int32_t>(word >> shift & m.max_code()) + m.zero_offset;
  }
}

void LoadRow(const GroupedCodes& m, int64_t row, float* out) {
  std::vector<uint8_t> codes(m.n_in);
  std::vector<float> scales(m.n_groups());
  std::vector<int32_t> zeros(m.n_groups());
  LoadCodes(m, row, codes.data());
  LoadGroups(m, row, scales.data(), zeros.data());
  for (int64_t i = 0; i < m.n_in; ++i) {
    const int64_t g = m.GroupOf(i);
    out[i] = scales[g] * static_cast<float>(codes[i] - zeros[g]);
  }
}

}  // namespace lowkey
