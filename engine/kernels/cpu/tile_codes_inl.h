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

// TileOfCodes is a tile of rows that meets half a panel, from a chunk's first group on.
struct TileOfCodes {
  TileRows rows;
  int64_t half;  // 0 or 1
  float* c;      // of that half
  int64_t ldc;
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

// The sums of a group, of codes of 8 bits or of the upper and the lower halves of 16 bits.
template <TileKind kKind>
using GroupSums = TileSums[kKind.row_bits == 16 ? 2 : 1];

// Multiplies group g of kRows rows by the unit, and asks the memory for the next chunk's.
template <class V, class T, TileKind kKind, int kRows, int kTurn>
[[gnu::always_inline]] inline void MultiplyGroup(T& tiles, const ExpandedChunk<V>& chunk,
                                                 const TileOfCodes& tile, int64_t g,
                                                 GroupSums<kKind>& sums) {
  constexpr int64_t kPlane = kRows * kKind.group, kRowBytes = sizeof(sums[0].v[0]);
  constexpr int kHigh = 2 * kTurn, kLow = kHigh + 1, kCodes = 6 + kTurn;
  const std::byte* a = tile.rows.rows.codes + g * kPlane * (kKind.row_bits / 8);
  const std::byte* next = tile.rows.next + g * tile.rows.group_bytes;
  for (int64_t i = 0; i < tile.rows.group_bytes; i += 64) __builtin_prefetch(next + i);
  tiles.template Load<kCodes>(chunk.codes[g] + 4 * V::kLanes * tile.half, 8 * V::kLanes);
  tiles.template Load<4>(a, kKind.group);
  tiles.template Zero<kHigh>();
  tiles.template AddSigned<kHigh, 4, kCodes>();
  tiles.template Store<kHigh>(&sums[0], kRowBytes);
  if constexpr (kKind.row_bits == 16) {
    tiles.template Load<5>(a + kPlane, kKind.group);
    tiles.template Zero<kLow>();
    tiles.template AddUnsigned<kLow, 5, kCodes>();
    tiles.template Store<kLow>(&sums[1], kRowBytes);
  }
}

// Adds the sums of group g to the results.
template <class V, TileKind kKind, int kRows>
[[gnu::always_inline]] inline void AddSumsOfGroup(const ExpandedChunk<V>& chunk,
                                                  const TileOfCodes& tile, int64_t g,
                                                  const GroupSums<kKind>& sums,
                                                  typename V::Vec (&y)[kRows]) {
  const auto scales = V::Load(chunk.scales[g] + V::kLanes * tile.half);
  auto adds = V::Zero();
  if constexpr (kKind.has_add) adds = V::Load(chunk.adds[g] + V::kLanes * tile.half);
  const float* row_scales = tile.rows.rows.scales + g * kRows;
  const float* row_sums = tile.rows.rows.sums + g * kRows;
  ForRows<V, kRows>([&](int i) __attribute__((always_inline)) {
    auto sum = V::LoadInts(sums[0].v[i]);
    if constexpr (kKind.row_bits == 16) {
      sum = V::AddInts(V::ShiftLeft8(sum), V::LoadInts(sums[1].v[i]));
    }
    y[i] = V::Fused(V::Mul(V::ToFloats(sum), V::Set1(row_scales[i])), scales, y[i]);
    if constexpr (kKind.has_add) y[i] = V::Fused(V::Set1(row_sums[i]), adds, y[i]);
  });
}

// Adds a chunk's groups to the results of kRows rows, which stay in registers. While the vectors
// add one group, the unit multiplies the next one.
template <class V, class T, TileKind kKind, int kRows>
[[gnu::noinline]] void AddGroups(T& tiles, const ExpandedChunk<V>& chunk, const TileOfCodes& tile) {
  GroupSums<kKind> even, odd;
  typename V::Vec y[kRows];
  MultiplyGroup<V, T, kKind, kRows, 0>(tiles, chunk, tile, 0, even);
  ForRows<V, kRows>([&](int i) __attribute__((always_inline)) {
    y[i] = tile.rows.is_first ? V::Zero() : V::Load(tile.c + i * tile.ldc);
  });
  const int64_t n = chunk.n_groups;
  for (int64_t g = 0; g < n; g += 2) {
    if (g + 1 < n) MultiplyGroup<V, T, kKind, kRows, 1>(tiles, chunk, tile, g + 1, odd);
    AddSumsOfGroup<V, kKind>(chunk, tile, g, even, y);
    if (g + 1 == n) break;
    if (g + 2 < n) MultiplyGroup<V, T, kKind, kRows, 0>(tiles, chunk, tile, g + 2, even);
    AddSumsOfGroup<V, kKind>(chunk, tile, g + 1, odd, y);
  }
  ForRows<V, kRows>([&](int i)
                        __attribute__((always_inline)) { V::Store(tile.c + i * tile.ldc, y[i]); });
}

template <class V, class T, TileKind kKind, int kRows>
void AddGroupsOf(T& tiles, const ExpandedChunk<V>& chunk, const TileOfCodes& tile) {
  if constexpr (kRows > kFewestCodedUnitRows) {
    if (tile.rows.n < kRows) return AddGroupsOf<V, T, kKind, kRows - 1>(tiles, chunk, tile);
  }
  AddGroups<V, T, kKind, kRows>(tiles, chunk, tile);
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
      [&](int64_t t, const TileRows& all, float* c) {
        tiles.Configure(all.n, kShape.group);
        for (int64_t half = 0; half < 2; ++half) {
          TileRows rows = all;
          if (t > 0 || half > 0) rows.group_bytes = 0;  // the first one has asked
          AddGroupsOf<V, T, kKind, kUnitRows>(tiles, chunk,
                                              {rows, half, c + half * V::kLanes, p.ldc});
        }
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
