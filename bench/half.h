#ifndef LOWKEY_BENCH_HALF_H_
#define LOWKEY_BENCH_HALF_H_

#include <bit>
#include <cstdint>

namespace lowkey {

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

#endif  // LOWKEY_BENCH_HALF_H_
