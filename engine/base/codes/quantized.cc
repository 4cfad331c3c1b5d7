#include "engine/base/codes/quantized.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int kSmall = 32;  // elements of a small block; those of the K types and IQ4_XS have 256

// The numbers that the 16 codes of IQ4_NL and IQ4_XS stand for.
constexpr int8_t kUnevenSteps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
// The numbers of MXFP4 (E2M1), doubled so that they are integers. Both zeros are +0.
constexpr int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t Bits16At(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

float HalfAt(const uint8_t* p) { return HalfToFloat(Bits16At(p)); }

// Reads a block of Q4_0, Q4_1, Q5_0 or Q5_1: scale, [minimum,] [the fifth bits of 32 elements,] and
// low four bits: byte j holds elements j (low) and j + 16 (high).
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

// Reads a block of Q6_K: low four bits of 256 elements, their two high bits, 16 scales, the scales'
// scale. Each half of the block has 64 bytes of low bits (two runs of 32 elements in the low halves
// of the bytes, two more in the high halves) and 32 bytes of high bits, two per element of its four
// runs.
void CodesQ6_K(const uint8_t* p, CodedBlock& out) {
  const uint8_t *low = p, *high = p + 128, *scales = p + 192;
  out.scale = Bits16At(p + 208);
  for (int i = 0; i < 16; ++i) {  // sub-blocks of 16: two to a run
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const uint8_t* low_bits = low + half * 64 + run % 2 * 32 + at;
    const uint8_t* high_bits = high + half * 32 + at;
    out.scale_factors[i] = scales[i];
    for (int j = 0; j < 16; ++j) {
      const int four = low_bits[j] >> (run / 2 * 4) & 15, two = high_bits[j] >> (run * 2) & 3;
      out.codes[i * 16 + j] = static_cast<uint8_t>(four | two << 4);
    }
  }
}

// Writes the numbers of a block of a type: see CodedBlock.
template <DType kType>
void NumbersOf(const CodedBlock& block, float* out) {
  constexpr bool kIsLarge = DTypeBlockSize(kType) > kSmall;
  constexpr bool kHasAdd = kType == DType::kQ4_1 || kType == DType::kQ5_1 ||
                           kType == DType::kQ4_K || kType == DType::kQ5_K;
  constexpr int kZero = kType == DType::kQ4_0   ? 8
                        : kType == DType::kQ5_0 ? 16
                        : kType == DType::kQ6_K ? 32
                                                : 0;
  constexpr int kGroup = kType == DType::kQ6_K ? 16 : 32;
  const float scale = HalfToFloat(block.scale), add = HalfToFloat(block.add);
  for (int first = 0, g = 0; first < DTypeBlockSize(kType); first += kGroup, ++g) {
    float d = scale, m = add;
    if (kIsLarge) d *= static_cast<float>(static_cast<int8_t>(block.scale_factors[g]));
    if (kIsLarge) m *= -static_cast<float>(block.add_factors[g]);
    for (int i = first; i < first + kGroup; ++i) {
      const int code =
          kType == DType::kQ8_0 ? static_cast<int8_t>(block.codes[i]) : block.codes[i] - kZero;
      const float product = d * static_cast<float>(code);
      out[i] = kHasAdd ? product + m : product;
    }
  }
}

// Reads a block of Q2_K: 16 bytes with a sub-block's scale (low) and minimum (high), two bits of
// 256 elements, scale of scales, scale of minima. Each half of the block has 32 bytes, whose pairs
// of bits are four runs of 32 elements.
void BlockQ2_K(const uint8_t* p, float* out) {
  const float scale = HalfAt(p + 80), minimum = HalfAt(p + 82);
  for (int i = 0; i < 16; ++i) {  // sub-blocks of 16: two to a run
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const uint8_t* bits = p + 16 + half * 32 + at;
    const float d = scale * static_cast<float>(p[i] & 15);
    const float m = minimum * static_cast<float>(p[i] >> 4);
    for (int j = 0; j < 16; ++j) {
      out[i * 16 + j] = d * static_cast<float>(bits[j] >> (run * 2) & 3) - m;
    }
  }
}

// Reads a block of Q3_K: 32 bytes whose bit i belongs to the elements of the i-th run of 32 (a
// cleared bit subtracts 4), two low bits as in Q2_K, 12 bytes with 16 scales of six bits, the
// scales' scale. Byte i % 8 of the 12 has the low four bits of scale i, and byte 8 + i % 4 the high
// two.
void BlockQ3_K(const uint8_t* p, float* out) {
  const uint8_t *high = p, *low = p + 32, *scales = p + 96;
  const float scale = HalfAt(p + 108);
  for (int i = 0; i < 16; ++i) {
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const int four = scales[i % 8] >> (i / 8 * 4) & 15, two = scales[8 + i % 4] >> (i / 4 * 2) & 3;
    const float d = scale * static_cast<float>((four | two << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      const int q = low[half * 32 + at + j] >> (run * 2) & 3;
      const bool is_high = (high[at + j] >> (i / 2) & 1) != 0;
      out[i * 16 + j] = d * static_cast<float>(is_high ? q : q - 4);
    }
  }
}

// Writes 32 elements whose codes stand in 16 bytes: byte j holds elements j (low) and j + 16
// (high).
void LookUp(const uint8_t* codes, const int8_t* numbers, float scale, float* out) {
  for (int j = 0; j < kSmall / 2; ++j) {
    out[j] = scale * static_cast<float>(numbers[codes[j] & 15]);
    out[j + kSmall / 2] = scale * static_cast<float>(numbers[codes[j] >> 4]);
  }
}

void BlockIQ4_NL(const uint8_t* p, float* out) { LookUp(p + 2, kUnevenSteps, HalfAt(p), out); }

// Reads a block of IQ4_XS: the scales' scale, two high bits of 8 scales, their low four bits, and
// the codes of 8 sub-blocks of 32.
void BlockIQ4_XS(const uint8_t* p, float* out) {
  const float scale = HalfAt(p);
  uint16_t high;
  std::memcpy(&high, p + 2, sizeof(high));
  for (int i = 0; i < 8; ++i) {
    const int four = p[4 + i / 2] >> (i % 2 * 4) & 15, two = high >> (2 * i) & 3;
    const float d = scale * static_cast<float>((four | two << 4) - 32);
    LookUp(p + 8 + i * 16, kUnevenSteps, d, out + i * kSmall);
  }
}

// Reads a block of MXFP4: a power of two, 2^(byte - 127), and codes. The scale is half of that
// because the numbers are doubled. 255, the format's NaN, is a power like others in ggml.
void BlockMXFP4(const uint8_t* p, float* out) {
  const uint32_t exponent = p[0];
  const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
  LookUp(p + 1, kE2M1Doubled, std::bit_cast<float>(bits), out);
}

// Types that products multiply as they are stored.
struct CodedType {
  DType dtype;
  void (*read)(const uint8_t* block, CodedBlock& out);
  void (*numbers)(const CodedBlock& block, float* out);
};
constexpr CodedType kCodedTypes[] = {
    {DType::kQ4_0, SmallCodes<4, false>, NumbersOf<DType::kQ4_0>},
    {DType::kQ4_1, SmallCodes<4, true>, NumbersOf<DType::kQ4_1>},
    {DType::kQ5_0, SmallCodes<5, false>, NumbersOf<DType::kQ5_0>},
    {DType::kQ5_1, SmallCodes<5, true>, NumbersOf<DType::kQ5_1>},
    {DType::kQ8_0, CodesQ8_0, NumbersOf<DType::kQ8_0>},
    {DType::kQ4_K, LargeCodes<4>, NumbersOf<DType::kQ4_K>},
    {DType::kQ5_K, LargeCodes<5>, NumbersOf<DType::kQ5_K>},
    {DType::kQ6_K, CodesQ6_K, NumbersOf<DType::kQ6_K>},
};

// Types that are widened.
struct PlainType {
  DType dtype;
  void (*read)(const uint8_t* block, float* out);
};
constexpr PlainType kPlainTypes[] = {
    {DType::kQ2_K, BlockQ2_K},     {DType::kQ3_K, BlockQ3_K},   {DType::kIQ4_NL, BlockIQ4_NL},
    {DType::kIQ4_XS, BlockIQ4_XS}, {DType::kMXFP4, BlockMXFP4},
};

template <typename Type, size_t kSize>
const Type* Find(const Type (&types)[kSize], DType dtype) {
  const Type* type = std::find_if(std::begin(types), std::end(types),
                                  [dtype](const Type& t) { return t.dtype == dtype; });
  return type == std::end(types) ? nullptr : type;
}

}  // namespace

void Dequantize(DType dtype, const std::byte* blocks, int64_t n_blocks, float* out) {
  const auto* p = reinterpret_cast<const uint8_t*>(blocks);
  const CodedType* const coded = Find(kCodedTypes, dtype);
  const PlainType* const plain = Find(kPlainTypes, dtype);
  LK_CHECK(coded != nullptr || plain != nullptr);
  CodedBlock block;
  for (int64_t i = 0; i < n_blocks; ++i, p += DTypeBytes(dtype), out += DTypeBlockSize(dtype)) {
    if (coded == nullptr) {
      plain->read(p, out);
      continue;
    }
    coded->read(p, block);
    coded->numbers(block, out);
  }
}

void ReadCodes(DType dtype, const std::byte* block, CodedBlock& out) {
  const CodedType* const coded = Find(kCodedTypes, dtype);
  LK_CHECK(coded != nullptr);
  coded->read(reinterpret_cast<const uint8_t*>(block), out);
}

}  // namespace lowkey
