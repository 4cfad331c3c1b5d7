// Products with levels of a codebook for AVX2, a part of levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX2_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX2_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/levels.h"

namespace lowkey::cpu {

constexpr int64_t kLevelNibbles = 8;  // that are read at once
using LevelGains = float[kLevelTokens];
using LevelTables = __m256i[LevelBook::kTables];
using LevelWeight = uint8_t;

// The 64 tokens' gains.
template <class V>
inline void UnpackGains(const LevelBook& book, const uint8_t* codes, float* gains) {
  // A lane's low three bits choose, of which the third is the next token's: gains repeat.
  const __m256 table = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(book.gains));
  const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
#pragma GCC unroll 8
  for (int64_t t = 0; t < kLevelTokens; t += 8) {
    uint16_t eight;
    __builtin_memcpy(&eight, codes + t / 4, sizeof(eight));
    const __m256i index = _mm256_srlv_epi32(_mm256_set1_epi32(eight), shifts);
    _mm256_storeu_ps(gains + t, _mm256_permutevar8x32_ps(table, index));
  }
}

// The book as pshufb takes it, levels plus `offset`.
template <class V>
inline void LoadTables(const LevelBook& book, int offset, __m256i* tables) {
  for (int i = 0; i < LevelBook::kTables; ++i) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(book.levels[i]));
    tables[i] =
        _mm256_broadcastsi128_si256(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(offset))));
  }
}

struct TwoNibbles {
  __m256i low, high;  // the low and the high bits of 32 bytes
};

template <class V>
inline TwoNibbles SplitNibbles(const uint8_t* codes) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  return {_mm256_and_si256(both, mask), _mm256_and_si256(_mm256_srli_epi16(both, 4), mask)};
}

// Sums of products of four components of eight tokens.
template <class V>
inline __m256i QuadProducts(__m256i levels, __m256i row) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(levels, row), _mm256_set1_epi16(1));
}

// Adds what the components of a band give to the scores of tokens 8 i.. and 32 + 8 i.., i in
// [first, first + 2), of kRows rows.
template <class V, int kRows, int kPlaces>
inline void ScoreBand(const ScoreLevelsArgs& a, int64_t first_row, int64_t first,
                      const LevelPlace& at, const __m256i* tables, __m256i (&sums)[kRows][4]) {
  const int64_t ld = a.bands.n_components();
  for (int64_t u = 0; u < at.n; u += 4) {
    const uint8_t* codes = a.codes + (at.nibble + u + first) * 32;
    const TwoNibbles one = SplitNibbles<V>(codes), two = SplitNibbles<V>(codes + 32);
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      const __m256i levels[4] = {
          _mm256_shuffle_epi8(tables[i], one.low), _mm256_shuffle_epi8(tables[i], two.low),
          _mm256_shuffle_epi8(tables[i], one.high), _mm256_shuffle_epi8(tables[i], two.high)};
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, a.rows + (first_row + r) * ld + at.first + i * at.n + u,
                         sizeof(four));
        const __m256i row = _mm256_set1_epi32(four);
#pragma GCC unroll 4
        for (int t = 0; t < 4; ++t) {
          sums[r][t] = _mm256_add_epi32(sums[r][t], QuadProducts<V>(levels[t], row));
        }
      }
    }
  }
}

template <class V, int kRows>
inline void ScoreSixteen(const ScoreLevelsArgs& a, int64_t first_row, int64_t first,
                         const LevelTables& tables, const float* gains) {
  __m256i sums[kRows][4];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = _mm256_setzero_si256();
  }
  ForBands(a.bands, tables, [&]<int kPlaces>(const LevelPlace& at, const __m256i* table) {
    ScoreBand<V, kRows, kPlaces>(a, first_row, first, at, table, sums);
  });
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    const __m256i offset = _mm256_set1_epi32(LevelBook::kMost * a.row_sums[row]);
    const __m256 scale = _mm256_set1_ps(a.scales[row]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int64_t token = (first + i % 2) * 8 + i / 2 * 32;
      const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[r][i], offset));
      const __m256 factor = _mm256_mul_ps(scale, _mm256_loadu_ps(gains + token));
      float* to = a.scores + row * a.ld_scores + token;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(sum, factor, _mm256_loadu_ps(to)));
    }
  }
}

template <class V, int kRows>
inline void ScoreRows(const ScoreLevelsArgs& a, int64_t row, const LevelTables& tables,
                      const float* gains) {
  ScoreSixteen<V, kRows>(a, row, 0, tables, gains);
  ScoreSixteen<V, kRows>(a, row, 2, tables, gains);
}

// Rounds a row's weights times gains to 8 bits; returns their unit, 0 where all are zero.
template <class V>
inline float RoundWeights(const float* weights, const float* gains, uint8_t* rounded) {
  __m256 products[8], most = _mm256_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    products[i] = _mm256_mul_ps(_mm256_loadu_ps(weights + 8 * i), _mm256_loadu_ps(gains + 8 * i));
    most = _mm256_max_ps(most, products[i]);
  }
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  const float largest = _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  const float factor = 255.0f / largest;
  if (!(largest > 0) || !(factor < 1e38f)) {
    __builtin_memset(rounded, 0, kLevelTokens);
    return 0;
  }
  const __m256 factors = _mm256_set1_ps(factor);
  __m256i codes[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(products[i], factors));
  // Packing joins halves of registers, which the permutation puts in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256i low = _mm256_packus_epi32(codes[4 * i], codes[4 * i + 1]);
    const __m256i high = _mm256_packus_epi32(codes[4 * i + 2], codes[4 * i + 3]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(rounded) + i,
                       _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
  }
  return largest / 255.0f;
}

// Adds to the components of kRows rows that the eight nibbles from `u` on of a band have.
template <class V, int kRows, int kPlaces>
inline void ReadNibbles(const ReadLevelsArgs& a, int64_t first_row, const LevelPlace& at, int64_t u,
                        const __m256i* tables, const uint8_t (*weights)[kLevelTokens],
                        const float* units) {
  const int64_t ld = a.bands.n_nibbles();
  __m256i sums[kRows][kPlaces];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kPlaces; ++i) sums[r][i] = _mm256_setzero_si256();
  }
  for (int64_t t = 0; t < kLevelTokens / 2; t += 4) {
    const TwoNibbles nibbles = SplitNibbles<V>(a.codes + (t * ld + (at.nibble + u) * 4));
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      const __m256i levels_low = _mm256_shuffle_epi8(tables[i], nibbles.low),
                    levels_high = _mm256_shuffle_epi8(tables[i], nibbles.high);
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        int32_t low, high;
        __builtin_memcpy(&low, weights[r] + t, sizeof(low));
        __builtin_memcpy(&high, weights[r] + kLevelTokens / 2 + t, sizeof(high));
        const __m256i products = QuadProducts<V>(_mm256_set1_epi32(low), levels_low);
        sums[r][i] = _mm256_add_epi32(sums[r][i], products);
        sums[r][i] =
            _mm256_add_epi32(sums[r][i], QuadProducts<V>(_mm256_set1_epi32(high), levels_high));
      }
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      float* to = a.sums + (first_row + r) * a.ld_sums + at.first + i * at.n + u;
      const __m256 sum = _mm256_cvtepi32_ps(sums[r][i]);
      _mm256_storeu_ps(to, _mm256_fmadd_ps(sum, _mm256_set1_ps(units[r]), _mm256_loadu_ps(to)));
    }
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX2_INL_H_
