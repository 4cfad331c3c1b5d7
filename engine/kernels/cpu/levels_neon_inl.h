// Products with levels of a codebook for 64-bit Arm, a part of levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_

#include <arm_neon.h>

#include <cstdint>

#include "engine/kernels/cpu/levels_gains_inl.h"
#include "engine/kernels/levels.h"

namespace lowkey::cpu {

constexpr int64_t kLevelNibbles = 4;  // that are read at once
using LevelGains = float[kLevelTokens];
using LevelTables = int8x16_t[LevelBook::kTables];
using LevelWeight = int8_t;  // less 128

// Products of signed bytes need no offset.
template <class V>
inline void LoadTables(const LevelBook& book, int, int8x16_t* tables) {
  for (int i = 0; i < LevelBook::kTables; ++i) tables[i] = vld1q_s8(book.levels[i]);
}

struct TwoNibbles {
  uint8x16_t low, high;  // the low and the high bits of 16 bytes
};

template <class V>
inline TwoNibbles SplitNibbles(const uint8_t* codes) {
  const uint8x16_t both = vld1q_u8(codes);
  return {vandq_u8(both, vdupq_n_u8(15)), vshrq_n_u8(both, 4)};
}

template <class V>
inline int8x16_t SetFour(const void* p) {
  return V::SetQuad(static_cast<const std::byte*>(p));
}

// Adds what the components of a band give to the scores of 4 kVecs tokens from 4 * `first` and from
// 32 + 4 * `first` on, of kRows rows.
template <class V, int kRows, int kVecs, int kPlaces>
inline void ScoreBand(const ScoreLevelsArgs& a, int64_t first_row, int64_t first,
                      const LevelPlace& at, const int8x16_t* tables,
                      int32x4_t (&sums)[kRows][2 * kVecs]) {
  const int64_t ld = a.bands.n_components();
  for (int64_t u = 0; u < at.n; u += 4) {
    TwoNibbles nibbles[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      nibbles[v] = SplitNibbles<V>(a.codes + (at.nibble + u) * 32 + (first + v) * 16);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      int8x16_t rows[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        rows[r] = SetFour<V>(a.rows + (first_row + r) * ld + at.first + i * at.n + u);
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const int8x16_t low = vqtbl1q_s8(tables[i], nibbles[v].low),
                        high = vqtbl1q_s8(tables[i], nibbles[v].high);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          V::AddQuads(rows[r], low, sums[r][v]);
          V::AddQuads(rows[r], high, sums[r][kVecs + v]);
        }
      }
    }
  }
}

template <class V, int kRows, int kVecs>
inline void ScoreSome(const ScoreLevelsArgs& a, int64_t first_row, int64_t first,
                      const LevelTables& tables, const float* gains) {
  int32x4_t sums[kRows][2 * kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 2 * kVecs; ++i) sums[r][i] = vdupq_n_s32(0);
  }
  ForBands(a.bands, tables, [&]<int kPlaces>(const LevelPlace& at, const int8x16_t* table) {
    ScoreBand<V, kRows, kVecs, kPlaces>(a, first_row, first, at, table, sums);
  });
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    const auto scale = V::Set1(a.scales[row]);
    for (int i = 0; i < 2 * kVecs; ++i) {
      const int64_t token = (first + i % kVecs) * 4 + i / kVecs * 32;
      const auto factor = V::Mul(scale, V::Load(gains + token));
      float* to = a.scores + row * a.ld_scores + token;
      V::Store(to, V::Fma(V::ToFloats(sums[r][i]), factor, V::Load(to)));
    }
  }
}

template <class V, int kRows>
inline void ScoreRows(const ScoreLevelsArgs& a, int64_t row, const LevelTables& tables,
                      const float* gains) {
  constexpr int kVecs = 2;
  for (int64_t first = 0; first < 8; first += kVecs) {
    ScoreSome<V, kRows, kVecs>(a, row, first, tables, gains);
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

// Adds to the components of kRows rows that the four nibbles from `u` on of a band have.
template <class V, int kRows, int kPlaces>
inline void ReadNibbles(const ReadLevelsArgs& a, int64_t first_row, const LevelPlace& at, int64_t u,
                        const int8x16_t* tables, const int8_t (*weights)[kLevelTokens],
                        const float* units) {
  const int64_t ld = a.bands.n_nibbles();
  int32x4_t sums[kRows][kPlaces], levels[kPlaces];  // levels: 64 times their sum
#pragma GCC unroll 4
  for (int i = 0; i < kPlaces; ++i) {
    levels[i] = vdupq_n_s32(0);
    for (int r = 0; r < kRows; ++r) sums[r][i] = vdupq_n_s32(0);
  }
  for (int64_t t = 0; t < kLevelTokens / 2; t += 4) {
    const TwoNibbles nibbles = SplitNibbles<V>(a.codes + (t * ld + (at.nibble + u) * 4));
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      const int8x16_t low = vqtbl1q_s8(tables[i], nibbles.low),
                      high = vqtbl1q_s8(tables[i], nibbles.high);
      V::AddQuads(vdupq_n_s8(64), low, levels[i]);
      V::AddQuads(vdupq_n_s8(64), high, levels[i]);
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        V::AddQuads(SetFour<V>(weights[r] + t), low, sums[r][i]);
        V::AddQuads(SetFour<V>(weights[r] + kLevelTokens / 2 + t), high, sums[r][i]);
      }
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      float* to = a.sums + (first_row + r) * a.ld_sums + at.first + i * at.n + u;
      const auto sum = V::ToFloats(vaddq_s32(sums[r][i], vshlq_n_s32(levels[i], 1)));
      V::Store(to, V::Fma(sum, V::Set1(units[r]), V::Load(to)));
    }
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_NEON_INL_H_
