#ifndef LOWKEY_ENGINE_BASE_DTYPE_H_
#define LOWKEY_ENGINE_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lowkey {

// Element types, then GGUF's types of blocks: some elements in a row that share their scales.
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
};

struct DTypeInfo {
  std::string_view name;  // as safetensors or GGUF has it: "BF16", "Q4_K"
  int64_t block_size;     // elements in a block; 1 for element types
  size_t block_bytes;
};

// By DType's number.
inline constexpr DTypeInfo kDTypeInfos[] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"I32", 1, 4},    {"I64", 1, 8},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24}, {"Q8_0", 32, 34},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
};

constexpr int64_t DTypeBlockSize(DType t) { return kDTypeInfos[static_cast<int>(t)].block_size; }
// Bytes of a block: of an element, for element types.
constexpr size_t DTypeBytes(DType t) { return kDTypeInfos[static_cast<int>(t)].block_bytes; }
constexpr std::string_view DTypeName(DType t) { return kDTypeInfos[static_cast<int>(t)].name; }
// True for weights: whatever LoadFloats reads.
constexpr bool DTypeIsReal(DType t) { return t != DType::kI32 && t != DType::kI64; }

// Storage of a bfloat16: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

inline float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline BFloat16 ToBFloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// IEEE half precision to float, subnormals, infinities and NaN included.
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

// Float to IEEE half precision: round to nearest, ties to even; too large becomes infinity, NaN
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
