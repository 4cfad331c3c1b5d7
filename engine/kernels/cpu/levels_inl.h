// Products with levels of a codebook, a part of kernels_inl.h: see its first lines. Sums of
// integers are exact, so every instruction set has the same ones.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_

#include <cstdint>

#include "engine/kernels/levels.h"

namespace lowkey::cpu {

// LevelPlace says where components of one band lie: one for each of n nibbles from `nibble` on and
// each of the 1 << band places in them; those of the first place from component `first` on.
struct LevelPlace {
  int64_t first = 0, nibble = 0, n = 0;
};

// Calls body.operator()<kPlaces>(place, tables) for every band of kPlaces components a nibble.
template <class Tables, class Body>
inline void ForBands(const LevelBands& bands, const Tables& tables, const Body& body) {
  LevelPlace at;
  const auto call = [&]<int kBand>() {
    at.n = bands.nibbles(kBand);
    if (at.n > 0) body.template operator()<1 << kBand>(at, tables + LevelBook::TableOf(kBand));
    at.first += bands.n[kBand], at.nibble += at.n;
  };
  call.template operator()<0>();
  call.template operator()<1>();
  call.template operator()<2>();
}

}  // namespace lowkey::cpu

#if defined(__AVX512BW__)
#include "engine/kernels/cpu/levels_avx512_inl.h"
#elif defined(__AVX2__)
#include "engine/kernels/cpu/levels_avx2_inl.h"
#elif defined(LOWKEY_NEON)
#include "engine/kernels/cpu/levels_neon_inl.h"
#else

#include "engine/kernels/cpu/levels_gains_inl.h"

namespace lowkey::cpu {

template <class V>
void ScoreLevels(const ScoreLevelsArgs& a) {
  float gains[kLevelTokens];
  UnpackGains<V>(*a.book, a.gains, gains);
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int8_t* row = a.rows + r * a.bands.n_components();
    for (int64_t t = 0; t < kLevelTokens; ++t) {
      int32_t sum = 0;
      ForBands(a.bands, a.book->levels, [&]<int kPlaces>(const LevelPlace& at, const auto* levels) {
        for (int64_t j = 0; j < kPlaces * at.n; ++j) {
          const int64_t nibble = at.nibble + j % at.n, entry = 4 * (t % 32) + nibble % 4;
          const int code = a.codes[nibble / 4 * 128 + entry] >> (t < 32 ? 0 : 4) & 15;
          sum += row[at.first + j] * levels[j / at.n][code];
        }
      });
      a.scores[r * a.ld_scores + t] += static_cast<float>(sum) * (a.scales[r] * gains[t]);
    }
  }
}

template <class V>
void ReadLevels(const ReadLevelsArgs& a) {
  float gains[kLevelTokens];
  UnpackGains<V>(*a.book, a.gains, gains);
  for (int64_t r = 0; r < a.n_rows; ++r) {
    float products[kLevelTokens], largest = 0;
    for (int64_t t = 0; t < kLevelTokens; ++t) {
      products[t] = a.weights[r * a.ld_weights + t] * gains[t];
      largest = products[t] > largest ? products[t] : largest;
    }
    const float factor = 255.0f / largest;
    if (!(largest > 0) || !(factor < 1e38f)) continue;
    int32_t weights[kLevelTokens];
    for (int64_t t = 0; t < kLevelTokens; ++t) {
      // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low
      // bits.
      const float shifted = products[t] * factor + 0x1.8p23f;
      __builtin_memcpy(&weights[t], &shifted, sizeof(shifted));
      weights[t] -= 0x4b400000;
    }
    const int64_t ld = a.bands.n_nibbles();
    ForBands(a.bands, a.book->levels, [&]<int kPlaces>(const LevelPlace& at, const auto* levels) {
      for (int64_t j = 0; j < kPlaces * at.n; ++j) {
        int32_t sum = 0;
        for (int64_t t = 0; t < kLevelTokens; ++t) {
          const int64_t byte = (t % 32 / 4 * ld + at.nibble + j % at.n) * 4 + t % 4;
          sum += weights[t] * levels[j / at.n][a.codes[byte] >> (t < 32 ? 0 : 4) & 15];
        }
        a.sums[r * a.ld_sums + at.first + j] += static_cast<float>(sum) * (largest / 255.0f);
      }
    });
  }
}

}  // namespace lowkey::cpu

#endif

#if defined(__AVX2__) || defined(LOWKEY_NEON)

namespace lowkey::cpu {

// Adds to all components of kRows rows.
template <class V, int kRows>
inline void ReadRows(const ReadLevelsArgs& a, int64_t row, const LevelTables& tables,
                     const LevelGains& gains) {
  alignas(64) LevelWeight weights[kRows][kLevelTokens];
  float units[kRows];
  for (int r = 0; r < kRows; ++r) {
    units[r] = RoundWeights<V>(a.weights + (row + r) * a.ld_weights, gains, weights[r]);
  }
  ForBands(a.bands, tables, [&]<int kPlaces>(const LevelPlace& at, const auto* table) {
    for (int64_t u = 0; u < at.n; u += kLevelNibbles) {
      ReadNibbles<V, kRows, kPlaces>(a, row, at, u, table, weights, units);
    }
  });
}

// Calls body.operator()<kRows>(row) for the first of every three rows, and of those that are left.
template <class Body>
inline void InThrees(int64_t n_rows, const Body& body) {
  int64_t row = 0;
  for (; row + 3 <= n_rows; row += 3) body.template operator()<3>(row);
  if (row + 2 == n_rows) body.template operator()<2>(row);
  if (row + 1 == n_rows) body.template operator()<1>(row);
}

template <class V>
void ScoreLevels(const ScoreLevelsArgs& a) {
  LevelTables tables;
  LoadTables<V>(*a.book, LevelBook::kMost, tables);
  LevelGains gains;
  UnpackGains<V>(*a.book, a.gains, gains);
  InThrees(a.n_rows, [&]<int kRows>(int64_t row) { ScoreRows<V, kRows>(a, row, tables, gains); });
}

template <class V>
void ReadLevels(const ReadLevelsArgs& a) {
  LevelTables tables;
  LoadTables<V>(*a.book, 0, tables);
  LevelGains gains;
  UnpackGains<V>(*a.book, a.gains, gains);
  InThrees(a.n_rows, [&]<int kRows>(int64_t row) { ReadRows<V, kRows>(a, row, tables, gains); });
}

}  // namespace lowkey::cpu

#endif

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_INL_H_
