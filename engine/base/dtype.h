#ifndef LOWKEY_ENGINE_BASE_DTYPE_H_
#define LOWKEY_ENGINE_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lowkey {

// Element types, then GGUF's block types: a block is some successive elements that share scales.
// kAwq4, kGptq4 and kGptq8 are matrices in several tensors (grouped_codes.h); their blocks are
// words of eight or four codes, without the scales.
enum class DType {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kAwq4,
  kGptq4,
  kGptq8,
};

struct DTypeInfo {
  std::string_view name;  // the name in safetensors or GGUF ("BF16", "Q4_K"), or ours
  int64_t block_size;     // elements in a block; 1 for element types
  size_t block_bytes;
};

// Indexed by DType.
inline constexpr DTypeInfo kDTypeInfos[] = {
    {"F32", 1, 4},        {"F16", 1, 2},     {"BF16", 1, 2},     {"I32", 1, 4},
    {"I64", 1, 8},        {"Q4_0", 32, 18},  {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},     {"Q8_0", 32, 34},  {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},   {"Q2_K", 256, 84}, {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18},
    {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17}, {"AWQ4", 8, 4},     {"GPTQ4", 8, 4},
    {"GPTQ8", 4, 4},
};

constexpr int64_t DTypeBlockSize(DType t) { return kDTypeInfos[static_cast<int>(t)].block_size; }
// Returns the bytes of a block, or of an element of an element type.
constexpr size_t DTypeBytes(DType t) { return kDTypeInfos[static_cast<int>(t)].block_bytes; }
constexpr std::string_view DTypeName(DType t) { return kDTypeInfos[static_cast<int>(t)].name; }
// Returns true for the types that LoadRow reads, which weights may have.
constexpr bool DTypeIsReal(DType t) { return t != DType::kI32 && t != DType::kI64; }

// A bfloat16 is the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

inline float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
inline BFloat16 ToBFloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// Widens IEEE half precision, subnormals, infinities and NaN included.
inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

// Rounds to IEEE half precision, to nearest, ties to even; too large a number becomes infinity, NaN
// stays NaN.
inline uint16_t FloatToHalf(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  uint32_t half;
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half: adding 1/2 leaves the rounded subnormal in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_DTYPE_H_
