// Products with coded weights by a matrix unit, a part of tile_products_inl.h: see its first lines.
// Sums of integers are exact in any order, so these have the bits of coded_inl.h's.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_TILE_CODES_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TILE_CODES_INL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/coded_weight.h"
#include "engine/kernels/cpu/coded_inl.h"
#include "engine/kernels/cpu/numbers_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// TileSums holds the sums of a group, of a tile of rows by 16 columns.
struct alignas(64) TileSums {
  int32_t v[kUnitRows][16];
};

// Lays pairs of steps out in fours: of two lines [kPanel][2] one of [kPanel][4].
inline constexpr int64_t kQuadPanel = 32;
template <class V>
[[gnu::noinline]] void JoinPairs(const int8_t* pairs, int64_t n_in, int8_t* out) {
  for (int64_t k = 0; k < n_in; k += 4, pairs += 4 * kQuadPanel, out += 4 * kQuadPanel) {
    uint16_t first[kQuadPanel], second[kQuadPanel];
    uint32_t both[kQuadPanel];
    __builtin_memcpy(first, pairs, sizeof(first));
    __builtin_memcpy(second, pairs + 2 * kQuadPanel, sizeof(second));
    for (int64_t i = 0; i < kQuadPanel; ++i) {
      both[i] = first[i] | static_cast<uint32_t>(second[i]) << 16;
    }
    __builtin_memcpy(out, both, sizeof(both));
  }
}

// TilesOfCodes are n_tiles tiles of as many rows each, one after another, that meet a panel.
struct TilesOfCodes {
  TileRows first;
  int64_t n_tiles;
  int64_t lda;  // steps of a row
  float* c;     // of the first tile, of the panel's first column
  int64_t ldc;
};

// Place is that of a group on the way over the tiles, each with the panel's halves and the chunk's
// groups. The rows are those of the tile.
template <TileKind kKind, int kRows>
struct Place {
  const std::byte* codes;
  const float *scales, *sums;
  float* c;
  int64_t half = 0, g = 0;

  [[gnu::always_inline]] explicit Place(const TilesOfCodes& tiles)
      : codes(tiles.first.rows.codes),
        scales(tiles.first.rows.scales),
        sums(tiles.first.rows.sums),
        c(tiles.c) {}
  [[gnu::always_inline]] void Next(const TilesOfCodes& tiles, int64_t n_groups) {
    if (++g < n_groups) return;
    g = 0;
    half ^= 1;
    if (half == 1) return;
    codes += kRows * tiles.lda * kKind.row_bits / 8;
    scales += kRows * (tiles.lda / kKind.group);
    sums += kRows * (tiles.lda / kKind.group);
    c += kRows * tiles.ldc;
  }
};

// Calls f(i) for each row: one after another in the code where results stay in registers.
template <class V, int kRows, class F>
[[gnu::always_inline]] inline void ForRows(const F& f) {
  if constexpr (kKeepsResults<V>) {
    ForNumbers<kRows>([&](auto i) __attribute__((always_inline)) { f(i.value); });
  } else {
    for (int i = 0; i < kRows; ++i) f(i);
  }
}

// TurnOf says which tiles a group takes. Its sums stay in tiles until those of kLag later groups
// are begun, as the unit takes long to finish sums, and then lie in memory until the next group's
// are stored. Rows of 16 bits have two tiles of sums: of their upper and of their lower halves.
template <TileKind kKind, int kTurn>
struct TurnOf {
  static constexpr int kTiles = kKind.row_bits / 8, kTurns = 4 / kTiles, kLag = kTurns / 2;
  static constexpr int kHigh = kTurn * kTiles, kLow = kHigh + 1;
  static constexpr int kRowTile = kTiles == 1 ? 4 + kTurn % 2 : 4, kCodes = 6 + kTurn % 2;
};

// The sums of the last two groups that were stored.
template <TileKind kKind>
using StoredSums = TileSums[2][kKind.row_bits / 8];

// Multiplies a group of kRows rows by the unit.
template <class V, class T, TileKind kKind, int kRows, int kTurn>
[[gnu::always_inline]] inline void MultiplyGroup(T& tiles, const ExpandedChunk<V>& chunk,
                                                 const Place<kKind, kRows>& at) {
  using Turn = TurnOf<kKind, kTurn>;
  constexpr int64_t kPlane = kRows * kKind.group;
  const std::byte* a = at.codes + at.g * kPlane * Turn::kTiles;
  tiles.template Load<Turn::kCodes>(chunk.codes[at.g] + 4 * V::kLanes * at.half, 8 * V::kLanes);
  tiles.template Load<Turn::kRowTile>(a, kKind.group);
  tiles.template Zero<Turn::kHigh>();
  tiles.template AddSigned<Turn::kHigh, Turn::kRowTile, Turn::kCodes>();
  if constexpr (Turn::kTiles == 2) {
    tiles.template Load<5>(a + kPlane, kKind.group);
    tiles.template Zero<Turn::kLow>();
    tiles.template AddUnsigned<Turn::kLow, 5, Turn::kCodes>();
  }
}

template <class T, TileKind kKind, int kTurn>
[[gnu::always_inline]] inline void StoreGroup(T& tiles, TileSums* sums) {
  using Turn = TurnOf<kKind, kTurn>;
  tiles.template Store<Turn::kHigh>(&sums[0], sizeof(sums->v[0]));
  if constexpr (Turn::kTiles == 2) tiles.template Store<Turn::kLow>(&sums[1], sizeof(sums->v[0]));
}

// Adds the sums of a group to the results of rows [kFirst, kLast) of kRows.
template <class V, TileKind kKind, int kRows, int kFirst, int kLast>
[[gnu::always_inline]] inline void AddSumsOfGroup(const ExpandedChunk<V>& chunk,
                                                  const Place<kKind, kRows>& at,
                                                  const TileSums* sums,
                                                  typename V::Vec (&y)[kRows]) {
  const auto scales = V::Load(chunk.scales[at.g] + V::kLanes * at.half);
  auto adds = V::Zero();
  if constexpr (kKind.has_add) adds = V::Load(chunk.adds[at.g] + V::kLanes * at.half);
  const float* row_scales = at.scales + at.g * kRows;
  const float* row_sums = at.sums + at.g * kRows;
  ForRows<V, kLast - kFirst>([&](int j) __attribute__((always_inline)) {
    const int i = kFirst + j;
    const auto high = V::LoadInts(sums[0].v[i]);
    auto sum = V::Zero();
    if constexpr (kKind.row_bits == 16) {
      sum = V::ToFloats(V::AddInts(V::ShiftLeft8(high), V::LoadInts(sums[1].v[i])));
    } else {
      sum = V::SmallToFloats(high);
    }
    y[i] = V::Fused(V::Mul(sum, V::Set1(row_scales[i])), scales, y[i]);
    if constexpr (kKind.has_add) y[i] = V::Fused(V::Set1(row_sums[i]), adds, y[i]);
  });
}

// Way is how far the groups of tiles are: begun by the unit, and added.
template <TileKind kKind, int kRows>
struct Way {
  Place<kKind, kRows> begun, added;
  const int64_t n;  // groups in all
  int64_t g = 0;    // the group whose turn it is to begin
  StoredSums<kKind> stored;

  [[gnu::always_inline]] Way(const TilesOfCodes& tiles, int64_t n_groups)
      : begun(tiles), added(tiles), n(2 * tiles.n_tiles * n_groups) {}
};

// Begins a group, and brings two earlier ones on their way.
template <class V, class T, TileKind kKind, int kRows, int kTurn>
[[gnu::always_inline]] inline void TakeTurn(T& tiles, const ExpandedChunk<V>& chunk,
                                            const TilesOfCodes& all, Way<kKind, kRows>& way,
                                            typename V::Vec (&y)[kRows]) {
  using Turn = TurnOf<kKind, kTurn>;
  constexpr int kStored = (kTurn + Turn::kTurns - Turn::kLag) % Turn::kTurns;
  const TileSums* sums = way.stored[(kStored + 1) % 2];
  auto& at = way.added;
  float* c = at.c + V::kLanes * at.half;
  const int64_t to_store = way.g - Turn::kLag;
  const bool adds = to_store > 0 && to_store <= way.n;
  if (way.g < way.n) {
    MultiplyGroup<V, T, kKind, kRows, kTurn>(tiles, chunk, way.begun);
    // The first tile asks for the next chunk's codes, evenly with both halves.
    if (way.g < 2 * chunk.n_groups) {
      const int64_t n_bytes = all.first.group_bytes / 2;
      const auto* next = all.first.next + way.g * n_bytes;
      for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
    }
    way.begun.Next(all, chunk.n_groups);
  }
  if (adds) {
    if (at.g == 0) {
      ForRows<V, kRows>([&](int i) __attribute__((always_inline)) {
        y[i] = all.first.is_first ? V::Zero() : V::Load(c + i * all.ldc);
      });
    }
    AddSumsOfGroup<V, kKind, kRows, 0, kRows / 2>(chunk, at, sums, y);
  }
  if (to_store >= 0 && to_store < way.n) {
    StoreGroup<T, kKind, kStored>(tiles, way.stored[kStored % 2]);
  }
  if (adds) {
    AddSumsOfGroup<V, kKind, kRows, kRows / 2, kRows>(chunk, at, sums, y);
    if (at.g + 1 == chunk.n_groups) {
      ForRows<V, kRows>([&](int i)
                            __attribute__((always_inline)) { V::Store(c + i * all.ldc, y[i]); });
    }
    at.Next(all, chunk.n_groups);
  }
  ++way.g;
}

// Adds a chunk's groups to the results of tiles of kRows rows; those of a tile and half a panel
// stay in registers. While the vectors add one group, the unit multiplies later ones.
template <class V, class T, TileKind kKind, int kRows>
[[gnu::noinline]] void AddGroups(T& tiles, const ExpandedChunk<V>& chunk, const TilesOfCodes& all) {
  using Turn = TurnOf<kKind, 0>;
  Way<kKind, kRows> way(all, chunk.n_groups);
  typename V::Vec y[kRows];
  while (way.g <= way.n + Turn::kLag) {
    TakeTurn<V, T, kKind, kRows, 0>(tiles, chunk, all, way, y);
    TakeTurn<V, T, kKind, kRows, 1>(tiles, chunk, all, way, y);
    if constexpr (Turn::kTurns == 4) {
      TakeTurn<V, T, kKind, kRows, 2>(tiles, chunk, all, way, y);
      TakeTurn<V, T, kKind, kRows, 3>(tiles, chunk, all, way, y);
    }
  }
}

template <class V, class T, TileKind kKind, int kRows>
void AddGroupsOf(T& tiles, const ExpandedChunk<V>& chunk, const TilesOfCodes& all) {
  if constexpr (kRows > kFewestCodedUnitRows) {
    if (all.first.n < kRows) return AddGroupsOf<V, T, kKind, kRows - 1>(tiles, chunk, all);
  }
  AddGroups<V, T, kKind, kRows>(tiles, chunk, all);
}

template <class V, class T, CodeFormat kFormat>
void MultiplyFormatInTiles(const CodedProductArgs& p) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr TileKind kKind = {kShape.row_bits, true, kShape.has_add(), kShape.group};
  constexpr int64_t kPanel = 2 * V::kLanes;
  static_assert(kPanel == kQuadPanel && kShape.group >= 32);
  ExpandedChunk<V> chunk;
  alignas(64) int8_t quads[kShape.row_bits == 16 ? kMaxCodedChunk * kPanel : 1];
  T tiles;
  // The first tiles may have a row less than the others (TileOf in packed_rows.h).
  const int64_t n_tiles = (p.n_rows + kUnitRows - 1) / kUnitRows;
  const int64_t n_larger = p.n_rows % n_tiles;
  ForCodedTiles<V, kFormat>(
      p, kUnitRows,
      [&](const std::byte* b, int64_t n_in) {
        Expand<V, kFormat, kShape.bits != 8, false, true>(b, n_in, chunk);
        for (int64_t g = 0; kShape.row_bits == 16 && g < chunk.n_groups; ++g) {
          int8_t* group = quads + g * kShape.group * kPanel;
          JoinPairs<V>(chunk.codes[g], kShape.group, group);
          chunk.codes[g] = group;
        }
      },
      [&](int64_t t, const TileRows& rows, float* c) {
        if (t != 0 && t != n_tiles - n_larger) return;  // one before took it
        tiles.Configure(rows.n, kShape.group);
        TilesOfCodes all = {rows, t == 0 ? n_tiles - n_larger : n_larger, p.lda, c, p.ldc};
        if (t > 0) all.first.group_bytes = 0;  // the first one has asked
        AddGroupsOf<V, T, kKind, kUnitRows>(tiles, chunk, all);
      });
}

template <class V, class T>
void MultiplyCodesInTiles(CodeFormat format, const CodedProductArgs& p) {
  WithFormat(format, [&](auto number) {
    // The caller does not ask for shorter groups.
    if constexpr (kCodeShapes[number.value].group >= 32) {
      MultiplyFormatInTiles<V, T, static_cast<CodeFormat>(number.value)>(p);
    }
  });
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TILE_CODES_INL_H_
