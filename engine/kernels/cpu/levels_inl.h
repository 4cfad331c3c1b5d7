// Levels of codebooks, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

#ifdef __AVX2__

// Eight tokens have kBits bytes, which one load of four bytes gets.
template <class V, int kBits>
inline void UnpackComponent(const uint8_t* codes, const float* levels, float* out) {
  constexpr int kCodes = 8;
  const __m256i shifts =
      _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kBits));
  // Eight levels are found by the low three bits of a lane, so that those of fewer bits repeat.
  alignas(32) float repeated[kCodes];
  for (int i = 0; i < kCodes; ++i) repeated[i] = levels[i & ((1 << kBits) - 1)];
  const __m256 low = _mm256_load_ps(repeated);
  const __m256 high = kBits < 4 ? low : _mm256_loadu_ps(levels + kCodes);
#pragma GCC unroll 8
  for (int64_t t = 0; t < LevelCodes::kTokens; t += kCodes, codes += kBits) {
    int32_t word;
    __builtin_memcpy(&word, codes, sizeof(word));
    const __m256i index = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
    __m256 level = _mm256_permutevar8x32_ps(low, index);
    if constexpr (kBits == 4) {
      const __m256 above = _mm256_permutevar8x32_ps(high, index);
      const __m256i is_above = _mm256_slli_epi32(index, 28);
      level = _mm256_blendv_ps(level, above, _mm256_castsi256_ps(is_above));
    }
    _mm256_storeu_ps(out + t, level);
  }
}

#else

template <class V, int kBits>
inline void UnpackComponent(const uint8_t* codes, const float* levels, float* out) {
  constexpr int64_t kCodes = 8;
  for (int64_t t = 0; t < LevelCodes::kTokens; t += kCodes, codes += kBits) {
    uint32_t word = 0;
    for (int i = 0; i < kBits; ++i) word |= static_cast<uint32_t>(codes[i]) << (8 * i);
    for (int64_t i = 0; i < kCodes; ++i) {
      out[t + i] = levels[(word >> (i * kBits)) & ((1 << kBits) - 1)];
    }
  }
}

#endif

template <class V>
void UnpackLevels(const LevelCodes& in, float* out) {
  const uint8_t* codes = in.codes;
  for (int64_t i = 0; i < in.n; ++i, out += LevelCodes::kTokens) {
    const int bits = in.bits[i];
    const float* levels = in.levels + (bits - 1) * LevelCodes::kMostLevels;
    if (bits == 1) {
      UnpackComponent<V, 1>(codes, levels, out);
    } else if (bits == 2) {
      UnpackComponent<V, 2>(codes, levels, out);
    } else if (bits == 3) {
      UnpackComponent<V, 3>(codes, levels, out);
    } else {
      UnpackComponent<V, 4>(codes, levels, out);
    }
    codes += bits * LevelCodes::kTokens / 8;
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_
