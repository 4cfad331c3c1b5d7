// Products with levels of a codebook for AVX-512, with VNNI where there is one; a part of
// levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

inline constexpr int64_t kLevelComponents = 16;  // that are read at once
using LevelGains = __m512[4];
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
inline __m512i LevelTable(const LevelBook& book, int offset) {
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(book.levels));
  return _mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8(static_cast<char>(offset))));
}

struct TwoLevels {
  __m512i low, high;  // of the low and of the high bits of 64 bytes
};

template <class V>
inline TwoLevels UnpackLevels(__m512i table, __m512i codes) {
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_shuffle_epi8(table, _mm512_and_si512(codes, mask)),
          _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask))};
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

template <class V, int kRows>
inline void ScoreRows(const ScoreLevelsArgs& a, int64_t first_row, __m512i table,
                      const __m512* gains) {
  __m512i sums[kRows][4];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = _mm512_setzero_si512();
  }
  for (int64_t j = 0; j < a.n; j += 4) {
    const uint8_t* codes = a.codes + j * 32;
    const TwoLevels one = UnpackLevels<V>(table, _mm512_loadu_si512(codes)),
                    two = UnpackLevels<V>(table, _mm512_loadu_si512(codes + 64));
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i row = SetQuad<V>(a.rows + (first_row + r) * a.n + j);
      AddQuadProducts<V>(one.low, row, sums[r][0]);
      AddQuadProducts<V>(two.low, row, sums[r][1]);
      AddQuadProducts<V>(one.high, row, sums[r][2]);
      AddQuadProducts<V>(two.high, row, sums[r][3]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r;
    const __m512i offset = _mm512_set1_epi32(LevelBook::kMost * a.row_sums[row]);
    const __m512 scale = _mm512_set1_ps(a.scales[row]), mean = _mm512_set1_ps(a.means[row]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][i], offset));
      const __m512 factor = _mm512_mul_ps(scale, gains[i]);
      _mm512_storeu_ps(a.scores + row * a.ld_scores + 16 * i, _mm512_fmadd_ps(sum, factor, mean));
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

// Adds to the 16 components of kRows rows from `component` on, or to those that there are.
template <class V, int kRows>
inline void ReadComponents(const ReadLevelsArgs& a, int64_t first_row, int64_t component,
                           __m512i table, const uint8_t (*weights)[kLevelTokens],
                           const float* units) {
  const bool is_whole = component + 16 <= a.n;
  const __mmask64 bytes = is_whole ? ~__mmask64{0} : ~__mmask64{0} >> 32;
  const auto lanes = static_cast<__mmask16>(is_whole ? 0xffff : 0xff);
  __m512i sums[kRows];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int64_t t = 0; t < kLevelTokens / 2; t += 4) {
    const __m512i codes = _mm512_maskz_loadu_epi8(bytes, a.codes + t * a.n + component * 4);
    const TwoLevels levels = UnpackLevels<V>(table, codes);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      AddQuadProducts<V>(SetQuad<V>(weights[r] + t), levels.low, sums[r]);
      AddQuadProducts<V>(SetQuad<V>(weights[r] + kLevelTokens / 2 + t), levels.high, sums[r]);
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    float* to = a.sums + (first_row + r) * a.ld_sums + component;
    const __m512 sum = _mm512_cvtepi32_ps(sums[r]), before = _mm512_maskz_loadu_ps(lanes, to);
    _mm512_mask_storeu_ps(to, lanes, _mm512_fmadd_ps(sum, _mm512_set1_ps(units[r]), before));
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_AVX512_INL_H_
