#include "engine/base/quantized.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int kSmall = 32;  // elements of a block of Q4_0 to Q8_0; the K types have 256

float HalfAt(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return HalfToFloat(bits);
}

// Reads a block of Q4_0, Q4_1, Q5_0 or Q5_1: scale, [minimum,] [the fifth bits of 32 elements,] and
// low four bits: byte j holds elements j (low) and j + 16 (high).
template <int kBits, bool kHasMinimum>
void SmallBlock(const uint8_t* p, float* out) {
  constexpr int kHeaderBytes = kHasMinimum ? 4 : 2;
  constexpr int kOffset = kHasMinimum ? 0 : 1 << (kBits - 1);
  const float scale = HalfAt(p);
  const float minimum = kHasMinimum ? HalfAt(p + 2) : 0.0f;
  uint32_t fifth = 0;
  if constexpr (kBits == 5) std::memcpy(&fifth, p + kHeaderBytes, sizeof(fifth));
  const uint8_t* low = p + kHeaderBytes + (kBits == 5 ? 4 : 0);
  const auto value = [&](int four, int j) {
    const int q = static_cast<int>(four | (fifth >> j & 1) << 4) - kOffset;
    const float product = scale * static_cast<float>(q);
    return kHasMinimum ? product + minimum : product;
  };
  for (int j = 0; j < kSmall / 2; ++j) {
    out[j] = value(low[j] & 15, j);
    out[j + kSmall / 2] = value(low[j] >> 4, j + kSmall / 2);
  }
}

void BlockQ8_0(const uint8_t* p, float* out) {
  const float scale = HalfAt(p);
  for (int j = 0; j < kSmall; ++j) {
    out[j] = scale * static_cast<float>(static_cast<int8_t>(p[2 + j]));
  }
}

// Six-bit scale and minimum of sub-block i of 8. The first four stand in the low six bits of bytes
// i and i + 4. Of the others byte i + 4 holds the low four bits of both, and the two high bits of
// bytes i - 4 and i hold the rest.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum SubBlockScales(const uint8_t* p, int i) {
  if (i < 4) return {p[i] & 63, p[i + 4] & 63};
  return {(p[i + 4] & 15) | (p[i - 4] >> 6) << 4, p[i + 4] >> 4 | (p[i] >> 6) << 4};
}

// Reads a block of Q4_K or Q5_K: scale of scales, scale of minima, 12 bytes of both, [the fifth
// bits: bit i of byte j is element j of sub-block i,] and low four bits: 32 bytes hold two
// sub-blocks.
template <int kBits>
void LargeBlock(const uint8_t* p, float* out) {
  const float scale = HalfAt(p), minimum = HalfAt(p + 2);
  const uint8_t* fifth = p + 16;
  const uint8_t* low = fifth + (kBits == 5 ? 32 : 0);
  for (int i = 0; i < 8; ++i) {
    const ScaleAndMinimum sub = SubBlockScales(p + 4, i);
    const float d = scale * static_cast<float>(sub.scale);
    const float m = minimum * static_cast<float>(sub.minimum);
    for (int j = 0; j < 32; ++j) {
      int q = low[i / 2 * 32 + j] >> (i % 2 * 4) & 15;
      if constexpr (kBits == 5) q |= (fifth[j] >> i & 1) << 4;
      out[i * 32 + j] = d * static_cast<float>(q) - m;
    }
  }
}

// Reads a block of Q6_K: low four bits of 256 elements, their two high bits, 16 scales, the scales'
// scale. Each half of the block has 64 bytes of low bits (two runs of 32 elements in the low halves
// of the bytes, two more in the high halves) and 32 bytes of high bits, two per element of its four
// runs.
void BlockQ6_K(const uint8_t* p, float* out) {
  const uint8_t *low = p, *high = p + 128, *scales = p + 192;
  const float scale = HalfAt(p + 208);
  for (int i = 0; i < 16; ++i) {  // sub-blocks of 16: two to a run
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const uint8_t* low_bits = low + half * 64 + run % 2 * 32 + at;
    const uint8_t* high_bits = high + half * 32 + at;
    const float d = scale * static_cast<float>(static_cast<int8_t>(scales[i]));
    for (int j = 0; j < 16; ++j) {
      const int four = low_bits[j] >> (run / 2 * 4) & 15, two = high_bits[j] >> (run * 2) & 3;
      out[i * 16 + j] = d * static_cast<float>((four | two << 4) - 32);
    }
  }
}

uint16_t Bits16At(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

template <int kBits, bool kHasMinimum>
void SmallCodes(const uint8_t* p, CodedBlock& out) {
  constexpr int kHeaderBytes = kHasMinimum ? 4 : 2;
  out.scale = Bits16At(p);
  if (kHasMinimum) out.add = Bits16At(p + 2);
  uint32_t fifth = 0;
  if constexpr (kBits == 5) std::memcpy(&fifth, p + kHeaderBytes, sizeof(fifth));
  const uint8_t* low = p + kHeaderBytes + (kBits == 5 ? 4 : 0);
  for (int j = 0; j < kSmall; ++j) {
    const int four = j < kSmall / 2 ? low[j] & 15 : low[j - kSmall / 2] >> 4;
    out.codes[j] = static_cast<uint8_t>(four | (fifth >> j & 1) << 4);
  }
}

void CodesQ8_0(const uint8_t* p, CodedBlock& out) {
  out.scale = Bits16At(p);
  std::copy_n(p + 2, kSmall, out.codes.begin());
}

template <int kBits>
void LargeCodes(const uint8_t* p, CodedBlock& out) {
  out.scale = Bits16At(p);
  out.add = Bits16At(p + 2);
  const uint8_t* fifth = p + 16;
  const uint8_t* low = fifth + (kBits == 5 ? 32 : 0);
  for (int i = 0; i < 8; ++i) {
    const ScaleAndMinimum sub = SubBlockScales(p + 4, i);
    out.scale_factors[i] = static_cast<uint8_t>(sub.scale);
    out.add_factors[i] = static_cast<uint8_t>(sub.minimum);
    for (int j = 0; j < 32; ++j) {
      int q = low[i / 2 * 32 + j] >> (i % 2 * 4) & 15;
      if constexpr (kBits == 5) q |= (fifth[j] >> i & 1) << 4;
      out.codes[i * 32 + j] = static_cast<uint8_t>(q);
    }
  }
}

void CodesQ6_K(const uint8_t* p, CodedBlock& out) {
  out.scale = Bits16At(p + 208);
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const uint8_t* low_bits = p + half * 64 + run % 2 * 32 + at;
    const uint8_t* high_bits = p + 128 + half * 32 + at;
    out.scale_factors[i] = p[192 + i];
    for (int j = 0; j < 16; ++j) {
      const int four = low_bits[j] >> (run / 2 * 4) & 15, two = high_bits[j] >> (run * 2) & 3;
      out.codes[i * 16 + j] = static_cast<uint8_t>(four | two << 4);
    }
  }
}

struct BlockType {
  DType dtype;
  void (*read)(const uint8_t* block, float* out);
  void (*read_codes)(const uint8_t* block, CodedBlock& out);
};
constexpr BlockType kBlockTypes[] = {
    {DType::kQ4_0, SmallBlock<4, false>, SmallCodes<4, false>},
    {DType::kQ4_1, SmallBlock<4, true>, SmallCodes<4, true>},
    {DType::kQ5_0, SmallBlock<5, false>, SmallCodes<5, false>},
    {DType::kQ5_1, SmallBlock<5, true>, SmallCodes<5, true>},
    {DType::kQ8_0, BlockQ8_0, CodesQ8_0},
    {DType::kQ4_K, LargeBlock<4>, LargeCodes<4>},
    {DType::kQ5_K, LargeBlock<5>, LargeCodes<5>},
    {DType::kQ6_K, BlockQ6_K, CodesQ6_K},
};

const BlockType& TypeOf(DType dtype) {
  const auto* type = std::find_if(std::begin(kBlockTypes), std::end(kBlockTypes),
                                  [dtype](const BlockType& t) { return t.dtype == dtype; });
  LK_CHECK(type != std::end(kBlockTypes));
  return *type;
}

}  // namespace

void Dequantize(DType dtype, const std::byte* blocks, int64_t n_blocks, float* out) {
  const BlockType& type = TypeOf(dtype);
  const auto* p = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < n_blocks; ++i) {
    type.read(p + i * DTypeBytes(dtype), out + i * DTypeBlockSize(dtype));
  }
}

void ReadCodes(DType dtype, const std::byte* block, CodedBlock& out) {
  TypeOf(dtype).read_codes(reinterpret_cast<const uint8_t*>(block), out);
}

}  // namespace lowkey
