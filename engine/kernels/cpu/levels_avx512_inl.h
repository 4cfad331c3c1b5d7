// Products with levels of a codebook for AVX-512, with VNNI where there is one; a part of
// levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/levels.h"

namespace lowkey::cpu {

constexpr int64_t kLevelNibbles = 16;  // that are read at once
using LevelGains = __m512[4];
using LevelTables = __m512i[LevelBook::kTables];
using LevelWeight = uint8_t;

// The 64 tokens' gains.
template <class V>
inline void UnpackGains(const LevelBook& book, const uint8_t* codes, __m512* gains) {
  // A lane's low four bits choose, of which the last two are the next token's: gains repeat.
  const __m512 table = _mm512_broadcast_f32x4(_mm_loadu_ps(book.gains));
  const __m512i shifts =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    int32_t sixteen;
    __builtin_memcpy(&sixteen, codes + 4 * i, sizeof(sixteen));
    gains[i] = _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi32(sixteen), shifts), table);
  }
}

// The book as vpshufb takes it, levels plus `offset`.
template <class V>
inline void LoadTables(const LevelBook& book, int offset, __m512i* tables) {
  for (int i = 0; i < LevelBook::kTables; ++i) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(book.levels[i]));
    tables[i] =
        _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(offset))));
  }
}

struct TwoNibbles {
  __m512i low, high;  // the low and the high bits of 64 bytes
};

template <class V>
inline TwoNibbles SplitNibbles(__m512i codes) {
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(codes, mask), _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask)};
}

// Adds the sums of products of four neighbors, the first factors not negative.
template <class V>
inline void AddQuadProducts(__m512i x, __m512i y, __m512i& sums) {
#ifdef __AVX512VNNI__
  sums = _mm512_dpbusd_epi32(sums, x, y);
#else
  sums =
      _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), _mm512_set1_epi16(1)));
#endif
}

template <class V>
inline __m512i SetQuad(const void* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Adds to the scores of kRows rows what the components of a band give.
template <class V, int kRows, int kPlaces>
inline void ScoreBand(const ScoreLevelsArgs& a, int64_t first_row, const LevelPlace& at,
                      const __m512i* tables, __m512i (&sums)[kRows][4]) {
  const int64_t ld = a.bands.n_components();
  for (int64_t u = 0; u < at.n; u += 4) {
    const uint8_t* codes = a.codes + (at.nibble + u) * 32;
    const TwoNibbles one = SplitNibbles<V>(_mm512_loadu_si512(codes)),
                     two = SplitNibbles<V>(_mm512_loadu_si512(codes + 64));
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      const __m512i levels[4] = {
          _mm512_shuffle_epi8(tables[i], one.low), _mm512_shuffle_epi8(tables[i], two.low),
          _mm512_shuffle_epi8(tables[i], one.high), _mm512_shuffle_epi8(tables[i], two.high)};
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = SetQuad<V>(a.rows + (first_row + r) * ld + at.first + i * at.n + u);
#pragma GCC unroll 4
        for (int t = 0; t < 4; ++t) AddQuadProducts<V>(levels[t], row, sums[r][t]);
      }
    }
  }
}

template <class V, int kRows>
inline void ScoreRows(const ScoreLevelsArgs& a, int64_t first_row, const LevelTables& tables,
                      const __m512* gains) {
  __m512i sums[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = _mm512_setzero_si512();
  }
  ForBands(a.bands, tables, [&]<int kPlaces>(const LevelPlace& at, const __m512i* table) {
    ScoreBand<V, kRows, kPlaces>(a, first_row, at, table, sums);
  });
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    const __m512i offset = _mm512_set1_epi32(LevelBook::kMost * a.row_sums[row]);
    const __m512 scale = _mm512_set1_ps(a.scales[row]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][i], offset));
      const __m512 factor = _mm512_mul_ps(scale, gains[i]);
      float* to = a.scores + row * a.ld_scores + 16 * i;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, factor, _mm512_loadu_ps(to)));
    }
  }
}

// Rounds a row's weights times gains to 8 bits; returns their unit, 0 where all are zero.
template <class V>
inline float RoundWeights(const float* weights, const __m512* gains, uint8_t* rounded) {
  __m512 products[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    products[i] = _mm512_mul_ps(_mm512_loadu_ps(weights + 16 * i), gains[i]);
  }
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(
      _mm512_max_ps(products[0], products[1]), _mm512_max_ps(products[2], products[3])));
  const float factor = 255.0f / largest;
  if (!(largest > 0) || !(factor < 1e38f)) {
    __builtin_memset(rounded, 0, kLevelTokens);
    return 0;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(products[i], _mm512_set1_ps(factor)));
    _mm_store_si128(reinterpret_cast<__m128i*>(rounded) + i, _mm512_cvtusepi32_epi8(codes));
  }
  return largest / 255.0f;
}

// Adds levels of two registers' nibbles, times the weights of the tokens that they belong to.
template <class V, int kRows, int kPlaces>
inline void AddPlaces(const TwoNibbles& nibbles, const __m512i* tables, const __m512i (&low)[kRows],
                      const __m512i (&high)[kRows], __m512i (&sums)[kRows][kPlaces]) {
#pragma GCC unroll 4
  for (int i = 0; i < kPlaces; ++i) {
    const __m512i low_levels = _mm512_shuffle_epi8(tables[i], nibbles.low),
                  high_levels = _mm512_shuffle_epi8(tables[i], nibbles.high);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      AddQuadProducts<V>(low[r], low_levels, sums[r][i]);
      AddQuadProducts<V>(high[r], high_levels, sums[r][i]);
    }
  }
}

// Adds to the components of kRows rows that the 16 nibbles from `u` on of a band have, or the eight
// that there are.
template <class V, int kRows, int kPlaces>
inline void ReadNibbles(const ReadLevelsArgs& a, int64_t first_row, const LevelPlace& at, int64_t u,
                        const __m512i* tables, const uint8_t (*weights)[kLevelTokens],
                        const float* units) {
  const int64_t ld = a.bands.n_nibbles();
  const uint8_t* codes = a.codes + (at.nibble + u) * 4;
  const bool is_whole = u + 16 <= at.n;
  __m512i sums[kRows][kPlaces], low[kRows], high[kRows];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kPlaces; ++i) sums[r][i] = _mm512_setzero_si512();
  }
  if (is_whole) {
#pragma GCC unroll 8
    for (int64_t t = 0; t < kLevelTokens / 2; t += 4) {
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        low[r] = SetQuad<V>(weights[r] + t);
        high[r] = SetQuad<V>(weights[r] + kLevelTokens / 2 + t);
      }
      const TwoNibbles nibbles = SplitNibbles<V>(_mm512_loadu_si512(codes + t * ld));
      AddPlaces<V>(nibbles, tables, low, high, sums);
    }
  } else {
    // The halves of a register have eight nibbles of four tokens, and of the next four.
    const auto two_quads = [](const uint8_t* p) {
      const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
      return _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(eight));
    };
    const auto half = [&](int64_t t) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + t * ld));
    };
#pragma GCC unroll 4
    for (int64_t t = 0; t < kLevelTokens / 2; t += 8) {
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        low[r] = two_quads(weights[r] + t);
        high[r] = two_quads(weights[r] + kLevelTokens / 2 + t);
      }
      const TwoNibbles nibbles =
          SplitNibbles<V>(_mm512_inserti64x4(_mm512_castsi256_si512(half(t)), half(t + 4), 1));
      AddPlaces<V>(nibbles, tables, low, high, sums);
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kPlaces; ++i) {
        const __m512i other = _mm512_shuffle_i64x2(sums[r][i], sums[r][i], 0x4e);
        sums[r][i] = _mm512_add_epi32(sums[r][i], other);
      }
    }
  }
  const auto lanes = static_cast<__mmask16>(is_whole ? 0xffff : 0xff);
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kPlaces; ++i) {
      float* to = a.sums + (first_row + r) * a.ld_sums + at.first + i * at.n + u;
      const __m512 sum = _mm512_cvtepi32_ps(sums[r][i]), before = _mm512_maskz_loadu_ps(lanes, to);
      _mm512_mask_storeu_ps(to, lanes, _mm512_fmadd_ps(sum, _mm512_set1_ps(units[r]), before));
    }
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_
