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

// Adds a chunk's groups to a tile's results. While the vectors add one group, the unit multiplies
// the next one.
template <class V, class T, TileKind kKind>
[[gnu::noinline]] void AddGroups(T& tiles, const ExpandedChunk<V>& chunk, const TileOfCodes& tile) {
  constexpr bool kIsWide = kKind.row_bits == 16;
  constexpr int64_t kPlanes = kIsWide ? 2 : 1, kHalf = 16;
  const int64_t height = tile.rows.n, plane = height * kKind.group;
  TileSums sums[2][kPlanes];
  const auto start = [&](int64_t g, auto turn) {
    constexpr int kTurn = turn.value, kHigh = 2 * kTurn, kLow = kHigh + 1;
    const std::byte* a = tile.rows.rows.codes + g * kPlanes * plane;
    tiles.template Load<6 + kTurn>(chunk.codes[g] + 4 * kHalf * tile.half, 8 * kHalf);
    tiles.template Load<4>(a, kKind.group);
    tiles.template Zero<kHigh>();
    tiles.template AddSigned<kHigh, 4, 6 + kTurn>();
    tiles.template Store<kHigh>(&sums[kTurn][0], sizeof(sums[0][0].v[0]));
    if constexpr (kIsWide) {
      tiles.template Load<5>(a + plane, kKind.group);
      tiles.template Zero<kLow>();
      tiles.template AddUnsigned<kLow, 5, 6 + kTurn>();
      tiles.template Store<kLow>(&sums[kTurn][1], sizeof(sums[0][0].v[0]));
    }
  };
  const CodedRows& rows = tile.rows.rows;
  const auto finish = [&](int64_t g, int turn) {
    const auto scales = V::Load(chunk.scales[g] + kHalf * tile.half);
    [[maybe_unused]] const auto adds =
        kKind.has_add ? V::Load(chunk.adds[g] + kHalf * tile.half) : V::Zero();
    const bool is_first = g == 0 && tile.rows.is_first;
    for (int64_t i = 0; i < height; ++i) {
      const int64_t at = g * height + i;
      auto sum = V::LoadInts(sums[turn][0].v[i]);
      if constexpr (kIsWide) {
        sum = V::AddInts(V::ShiftLeft8(sum), V::LoadInts(sums[turn][1].v[i]));
      } else if constexpr (!kKind.is_signed) {
        sum = V::AddInts(sum, V::SetInts(rows.starts + at));
      }
      float* c = tile.c + i * tile.ldc;
      auto y = is_first ? V::Zero() : V::Load(c);
      y = V::Fused(V::Mul(V::ToFloats(sum), V::Set1(rows.scales[at])), scales, y);
      if constexpr (kKind.has_add) y = V::Fused(V::Set1(rows.sums[at]), adds, y);
      V::Store(c, y);
    }
  };
  const int64_t n = chunk.n_groups;
  start(0, Number<0>());
  for (int64_t g = 0; g < n; g += 2) {
    if (g + 1 < n) start(g + 1, Number<1>());
    finish(g, 0);
    if (g + 2 < n) start(g + 2, Number<0>());
    if (g + 1 < n) finish(g + 1, 1);
  }
}

template <class V, class T, CodeFormat kFormat>
void MultiplyFormatInTiles(const CodedProductArgs& p) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr TileKind kKind = KindOf(kShape);
  constexpr int64_t kPanel = 2 * V::kLanes;
  static_assert(kPanel == kQuadPanel && kShape.group >= 32);
  ExpandedChunk<V> chunk;
  alignas(64) int8_t quads[kShape.row_bits == 16 ? kMaxCodedChunk * kPanel : 1];
  // These are NumTiles and NextTileRows of kernels.h.
  const int64_t n_tiles = (p.n_rows + kUnitRows - 1) / kUnitRows;
  const int64_t n_all_groups = p.lda / kShape.group;
  T tiles;
  for (int64_t panel = 0; panel < p.n_panels; ++panel) {
    const std::byte* b = p.b + panel * p.b_panel_bytes;
    for (int64_t k = p.k_begin; k < p.k_end; k += p.chunk) {
      const int64_t n_in = p.k_end - k < p.chunk ? p.k_end - k : p.chunk;
      Expand<V, kFormat, kShape.bits != 8, true>(b + k / kShape.block * kPanel * kShape.bytes(),
                                                 n_in, chunk);
      if constexpr (kShape.row_bits == 16) {
        for (int64_t g = 0; g < chunk.n_groups; ++g) {
          int8_t* group = quads + g * kShape.group * kPanel;
          JoinPairs<V>(chunk.codes[g], kShape.group, group);
          chunk.codes[g] = group;
        }
      }
      int64_t row = 0;
      for (int64_t t = 0; t < n_tiles; ++t) {
        const int64_t rows = (p.n_rows - row) / (n_tiles - t);
        const int64_t group = row * n_all_groups + k / kShape.group * rows;
        const int64_t code = (row * p.lda + k * rows) * kShape.row_bits / 8;
        const CodedRows a = {p.a.codes + code, p.a.scales + group, p.a.sums + group,
                             p.a.starts + group};
        tiles.Configure(rows, kShape.group);
        for (int64_t half = 0; half < 2; ++half) {
          float* c = p.c + row * p.ldc + panel * kPanel + half * V::kLanes;
          AddGroups<V, T, kKind>(tiles, chunk, {{a, rows, k == 0}, half, c, p.ldc});
        }
        row += rows;
      }
    }
  }
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
