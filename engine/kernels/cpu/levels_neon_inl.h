// Products with levels of a codebook for 64-bit Arm, a part of levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_

#include <arm_neon.h>

#include <cstdint>

#include "engine/kernels/cpu/levels_gains_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

inline constexpr int64_t kLevelComponents = 4;  // that are read at once
using LevelGains = float[kLevelTokens];
using LevelWeight = int8_t;  // less 128

// Products of signed bytes need no offset.
template <class V>
inline int8x16_t LevelTable(const LevelBook& book, int) {
  return vld1q_s8(book.levels);
}

struct TwoLevels {
  int8x16_t low, high;  // of the low and of the high bits of 16 bytes
};

template <class V>
inline TwoLevels UnpackLevels(int8x16_t table, const uint8_t* codes) {
  const uint8x16_t both = vld1q_u8(codes);
  return {vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15))),
          vqtbl1q_s8(table, vshrq_n_u8(both, 4))};
}

template <class V>
inline int8x16_t SetFour(const void* p) {
  return V::SetQuad(static_cast<const std::byte*>(p));
}

// Scores 4 kVecs tokens from 4 * `first` and from 32 + 4 * `first` on, for kRows rows.
template <class V, int kRows, int kVecs>
inline void ScoreSome(const ScoreLevelsArgs& a, int64_t first_row, int64_t first, int8x16_t table,
                      const float* gains) {
  int32x4_t sums[kRows][2 * kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 2 * kVecs; ++i) sums[r][i] = vdupq_n_s32(0);
  }
  for (int64_t j = 0; j < a.n; j += 4) {
    int8x16_t rows[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) rows[r] = SetFour<V>(a.rows + (first_row + r) * a.n + j);
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      const TwoLevels two = UnpackLevels<V>(table, a.codes + j * 32 + (first + i) * 16);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        V::AddQuads(rows[r], two.low, sums[r][i]);
        V::AddQuads(rows[r], two.high, sums[r][kVecs + i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    const auto scale = V::Set1(a.scales[row]), mean = V::Set1(a.means[row]);
    for (int i = 0; i < 2 * kVecs; ++i) {
      const int64_t token = (first + i % kVecs) * 4 + i / kVecs * 32;
      const auto factor = V::Mul(scale, V::Load(gains + token));
      V::Store(a.scores + row * a.ld_scores + token, V::Fma(V::ToFloats(sums[r][i]), factor, mean));
    }
  }
}

template <class V, int kRows>
inline void ScoreRows(const ScoreLevelsArgs& a, int64_t row, int8x16_t table, const float* gains) {
  constexpr int kVecs = 2;
  for (int64_t first = 0; first < 8; first += kVecs) {
    ScoreSome<V, kRows, kVecs>(a, row, first, table, gains);
  }
}

// Rounds a row's weights times gains to 8 bits, less 128; returns their unit, 0 where all are zero.
template <class V>
inline float RoundWeights(const float* weights, const float* gains, int8_t* rounded) {
  float products[kLevelTokens], largest = 0;
  for (int64_t t = 0; t < kLevelTokens; ++t) {
    products[t] = weights[t] * gains[t];
    largest = products[t] > largest ? products[t] : largest;
  }
  const float factor = 255.0f / largest;
  if (!(largest > 0) || !(factor < 1e38f)) {
    __builtin_memset(rounded, -128, kLevelTokens);
    return 0;
  }
  for (int64_t t = 0; t < kLevelTokens; ++t) {
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
    const float shifted = products[t] * factor + 0x1.8p23f;
    int32_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    rounded[t] = static_cast<int8_t>(bits - 0x4b400000 - 128);
  }
  return largest / 255.0f;
}

// Adds to four components of kRows rows from `component` on.
template <class V, int kRows>
inline void ReadComponents(const ReadLevelsArgs& a, int64_t first_row, int64_t component,
                           int8x16_t table, const int8_t (*weights)[kLevelTokens],
                           const float* units) {
  int32x4_t sums[kRows], levels = vdupq_n_s32(0);  // 64 times the sum of levels
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) sums[r] = vdupq_n_s32(0);
  for (int64_t t = 0; t < kLevelTokens / 2; t += 4) {
    const TwoLevels two = UnpackLevels<V>(table, a.codes + t * a.n + component * 4);
    V::AddQuads(vdupq_n_s8(64), two.low, levels);
    V::AddQuads(vdupq_n_s8(64), two.high, levels);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      V::AddQuads(SetFour<V>(weights[r] + t), two.low, sums[r]);
      V::AddQuads(SetFour<V>(weights[r] + kLevelTokens / 2 + t), two.high, sums[r]);
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    float* to = a.sums + (first_row + r) * a.ld_sums + component;
    const auto sum = V::ToFloats(vaddq_s32(sums[r], vshlq_n_s32(levels, 1)));
    V::Store(to, V::Fma(sum, V::Set1(units[r]), V::Load(to)));
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_
