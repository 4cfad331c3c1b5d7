// Attention by a matrix unit is compiled like the kernels: see the first lines of kernels_inl.h.
//
// Vectors limit it: the softmax of a row of 64 scores takes about three times as long as its
// products in the unit. So the unit multiplies one tile of rows while vectors weigh another.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_ATTEND_TILES_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_ATTEND_TILES_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// UnitWeights holds the scores of sixteen rows in a page, and what they become.
struct alignas(64) UnitWeights {
  float scores[kUnitRows * kPageTokens];
  uint16_t weights[kUnitRows * kPageTokens];
  WeighScratch scratch;
};
static_assert(kRowsAtOnce == kUnitRows);

// Hides the scores that a tile's rows do not see.
[[gnu::always_inline]] inline void HideScores(const PageSlots* visible, float* scores) {
  for (int64_t r = 0; r < kUnitRows; ++r, scores += kPageTokens) {
    for (int64_t i = 0; i < visible[r].begin; ++i) scores[i] = -__builtin_inff();
    for (int64_t i = visible[r].end; i < kPageTokens; ++i) scores[i] = -__builtin_inff();
  }
}

// PageProducts multiplies kUnitRows rows by a page of kDim numbers a token. The unit takes each
// product in parts: kPairSteps steps of 16 columns.
template <class T, int kDim>
class PageProducts {
 public:
  static constexpr int kParts = kDim / 8;  // of each product

  explicit PageProducts(const AttendPairsArgs& g) : g_(g) { tiles_.Configure(kUnitRows, 64); }

  // Multiply part kPart of scores [kUnitRows][64] = queries times keys.
  template <int kPart>
  [[gnu::always_inline]] void Score(const uint16_t* queries, float* scores) {
    constexpr int kStep = kPart / 4, kTile = kPart % 4, kSteps = kDim / kPairSteps;
    Multiply<kTile, kStep, kSteps, false>(queries, kDim, g_.keys, scores, kPageTokens, 0);
  }
  // Multiply part kPart of out [kUnitRows][kDim] += weights times values.
  template <int kPart>
  [[gnu::always_inline]] void AddValues(const uint16_t* weights, float* out) {
    constexpr int kGroup = kPart / 8, kTilesLeft = kDim / 16 - 4 * kGroup;
    constexpr int kTiles = kTilesLeft < 4 ? kTilesLeft : 4;
    constexpr int kStep = kPart % 8 / kTiles, kTile = kPart % 8 % kTiles;
    Multiply<kTile, kStep, 2, true>(weights, kPageTokens, g_.values, out, kDim, 4 * kGroup);
  }

 private:
  // Multiplies step kStep of kSteps by tile first_tile + kTile of B's columns.
  template <int kTile, int kStep, int kSteps, bool kAdds>
  [[gnu::always_inline]] void Multiply(const uint16_t* a, int64_t lda, const uint16_t* b, float* c,
                                       int64_t ldc, int first_tile) {
    constexpr int64_t kPanel = 32, kColumns = 16, kPairBytes = 2 * kPanel * sizeof(uint16_t);
    constexpr int kRows = 4 + kStep % 2, kRight = 6 + kTile % 2;
    const int64_t ldc_bytes = ldc * static_cast<int64_t>(sizeof(float));
    const int tile = first_tile + kTile;
    c += tile * kColumns;
    if constexpr (kStep == 0 && kAdds) tiles_.template Load<kTile>(c, ldc_bytes);
    if constexpr (kStep == 0 && !kAdds) tiles_.template Zero<kTile>();
    if constexpr (kTile == 0) {
      tiles_.template Load<kRows>(a + kStep * kPairSteps,
                                  lda * static_cast<int64_t>(sizeof(uint16_t)));
    }
    tiles_.template Load<kRight>(
        b + (tile / 2 * kSteps + kStep) * kPairSteps * kPanel + tile % 2 * 2 * kColumns,
        kPairBytes);
    tiles_.template AddPairs<kTile, kRows, kRight>();
    if constexpr (kStep + 1 == kSteps) tiles_.template Store<kTile>(c, ldc_bytes);
  }

  const AttendPairsArgs& g_;
  T tiles_;
};

template <class V, class T, int kDim>
void AttendPairsByTiles(const AttendPairsArgs& g) {
  using Products = PageProducts<T, kDim>;
  constexpr int kParts = Products::kParts;
  Products products(g);
  UnitWeights both[2];
  const auto score = [&](auto part, int64_t tile) __attribute__((always_inline)) {
    products.template Score<part.value>(g.queries + tile * kUnitRows * kDim, both[tile % 2].scores);
  };
  const auto add_values = [&](auto part, int64_t tile) __attribute__((always_inline)) {
    products.template AddValues<part.value>(both[tile % 2].weights,
                                            g.out + tile * kUnitRows * kDim);
  };
  const int64_t n_tiles = (g.n_rows + kUnitRows - 1) / kUnitRows;
  ForNumbers<kParts>([&](auto part) { score(part, 0); });
  // While vectors weigh a tile, the unit multiplies the next one's scores and the last one's
  // weights.
  for (int64_t t = 0; t < n_tiles; ++t) {
    UnitWeights& now = both[t % 2];
    if (g.visible != nullptr) HideScores(g.visible + t * kUnitRows, now.scores);
    const auto multiply_beside = [&](auto row) __attribute__((always_inline)) {
      constexpr int kFirst = 2 * kParts * row.value / kUnitRows;
      constexpr int kEnd = 2 * kParts * (row.value + 1) / kUnitRows;
      ForNumbers<kEnd, kFirst>([&](auto part) __attribute__((always_inline)) {
        if constexpr (part.value < kParts) {
          if (t + 1 < n_tiles) score(part, t + 1);
        } else {
          if (t > 0) add_values(Number<part.value - kParts>(), t - 1);
        }
      });
    };
    WeighRowsAtOnce<V>(
        now.scores, now.weights, now.scratch, g.states + t * kUnitRows,
        g.out + t * kUnitRows * kDim, kDim, [&](const auto& weigh) __attribute__((always_inline)) {
          ForNumbers<kUnitRows>([&](auto row) __attribute__((always_inline)) {
            weigh(row.value);
            multiply_beside(row);
          });
        });
  }
  ForNumbers<kParts>([&](auto part) { add_values(part, n_tiles - 1); });
}

template <class V, class T>
void AttendPairs(const AttendPairsArgs& g) {
  switch (g.dim) {
    case 32:
      return AttendPairsByTiles<V, T, 32>(g);
    case 64:
      return AttendPairsByTiles<V, T, 64>(g);
    case 96:
      return AttendPairsByTiles<V, T, 96>(g);
    case 128:
      return AttendPairsByTiles<V, T, 128>(g);
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_ATTEND_TILES_INL_H_
