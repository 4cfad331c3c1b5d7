// Products by a matrix unit. Compiled like the kernels: see the first lines of kernels_inl.h.
//
// Sums of bf16 have an order of their own. A block of kPairSteps steps is added as
//   even = the products of its even steps, added in order from 0 by fused multiply-adds
//   odd  = those of its odd steps likewise
//   c   += even + odd
// with numbers that are not normal taken as 0. So an element's bits depend on its row, its column
// and the blocks of steps alone.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_TILE_PRODUCTS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TILE_PRODUCTS_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/attend_tiles_inl.h"
#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tile_codes_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// ------------------------------------------------------------------ many rows, by tiles

// UnitRows says where a tile's rows of A lie: row r is at p + r * row_bytes, and step_bytes further
// on for each block of steps.
struct UnitRows {
  const uint8_t* p;
  int64_t row_bytes, step_bytes;
};

// Asks the memory for a share of the lines that are read next: in each step `n` lines, `distance`
// bytes from the columns that it multiplies.
struct LinesAhead {
  int64_t distance, n;
};

// Multiplies kTiles tiles of rows of one height by kPanels panels: sums in tiles 0 to 3, rows in 4
// and 5, columns in 6 and 7.
template <class T, int kTiles, int kPanels>
inline void MultiplyTiles(T& tiles, const GemmArgs& g, const UnitRows (&rows)[kTiles],
                          int64_t height, const uint16_t* b, float* c, const LinesAhead& ahead) {
  constexpr int64_t kPanel = 32, kColumns = 16, kPairBytes = 2 * kPanel * sizeof(uint16_t);
  constexpr int kHalves = 2 * kPanels;
  const int64_t ldc_bytes = g.ldc * static_cast<int64_t>(sizeof(float));
  const auto at = [&](int tile, int half) { return c + tile * height * g.ldc + half * kColumns; };
  ForNumbers<kTiles>([&](auto tile) {
    ForNumbers<kHalves>([&](auto half) {
      constexpr int kSum = decltype(tile)::value * kHalves + decltype(half)::value;
      if (g.into == GemmArgs::Into::kAccumulate) {
        tiles.template Load<kSum>(at(tile.value, half.value), ldc_bytes);
      } else {
        tiles.template Zero<kSum>();
      }
    });
  });
  for (int64_t kk = 0, step = 0; kk < g.k; kk += kPairSteps, ++step) {
    ForNumbers<kTiles>([&](auto tile) {
      constexpr int kRows = 4 + decltype(tile)::value;
      const UnitRows& from = rows[tile.value];
      tiles.template Load<kRows>(from.p + step * from.step_bytes, from.row_bytes);
    });
    ForNumbers<kHalves>([&](auto half) {
      constexpr int kRight = 6 + decltype(half)::value % 2;
      const uint16_t* panel = b + half.value / 2 * g.b_panel_stride + kk * kPanel;
      if constexpr (kRight == 6) {
        const char* next = reinterpret_cast<const char*>(panel) + ahead.distance;
        for (int64_t line = 0; line < ahead.n; ++line) __builtin_prefetch(next + 64 * line, 0, 2);
      }
      tiles.template Load<kRight>(panel + half.value % 2 * 2 * kColumns, kPairBytes);
      ForNumbers<kTiles>([&](auto tile) {
        constexpr int kTile = decltype(tile)::value;
        constexpr int kSum = kTile * kHalves + decltype(half)::value;
        tiles.template AddPairs<kSum, 4 + kTile, kRight>();
      });
    });
  }
  ForNumbers<kTiles>([&](auto tile) {
    ForNumbers<kHalves>([&](auto half) {
      constexpr int kSum = decltype(tile)::value * kHalves + decltype(half)::value;
      tiles.template Store<kSum>(at(tile.value, half.value), ldc_bytes);
    });
  });
}

// Multiplies kTiles tiles of rows by all columns. One tile takes two panels at once, so that four
// sums hide each other's latency.
template <class T, int kTiles>
inline void MultiplyColumns(T& tiles, const GemmArgs& g, const UnitRows (&rows)[kTiles],
                            int64_t height, float* c, const LinesAhead& ahead) {
  constexpr int64_t kPanel = 32;
  const auto* b = static_cast<const uint16_t*>(g.b);
  int64_t col = 0;
  const auto multiply = [&](auto panels) {
    MultiplyTiles<T, kTiles, panels.value>(tiles, g, rows, height,
                                           b + col / kPanel * g.b_panel_stride, c + col, ahead);
    col += panels.value * kPanel;
  };
  if constexpr (kTiles == 1) {
    while (col + 2 * kPanel <= g.n_cols) multiply(Number<2>());
  }
  while (col < g.n_cols) multiply(Number<1>());
}

template <class T>
void GemmPairsByTiles(const GemmArgs& g, const void* next_b) {
  const bool is_packed = g.a_layout == LeftLayout::kTiles;
  const auto* a = static_cast<const uint8_t*>(g.a);
  const auto rows_at = [&](int64_t row, int64_t height) -> UnitRows {
    constexpr int64_t kNumber = sizeof(uint16_t), kRun = kPairSteps * kNumber;
    const uint8_t* tile = a + row * g.lda * kNumber;
    if (is_packed) return {tile + g.k_begin * height * kNumber, kRun, kRun * height};
    return {tile, g.lda * kNumber, kRun};
  };
  T tiles;
  // These are NumTiles and NextTileRows of kernels.h.
  const int64_t n_tiles = (g.n_rows + kUnitRows - 1) / kUnitRows;
  // Each pair of tiles asks for its share of the next matrix.
  const int64_t n_pairs = (n_tiles + 1) / 2, n_lines = (kPairSteps + n_pairs - 1) / n_pairs;
  LinesAhead ahead{0, 0};
  if (next_b != nullptr) {
    ahead = {static_cast<const char*>(next_b) - static_cast<const char*>(g.b), n_lines};
  }
  int64_t row = 0;
  for (int64_t t = 0; t < n_tiles;) {
    const int64_t height = (g.n_rows - row) / (n_tiles - t);
    const bool is_pair = t + 1 < n_tiles && (g.n_rows - row - height) / (n_tiles - t - 1) == height;
    float* c = g.c + row * g.ldc;
    tiles.Configure(height, 64);
    if (is_pair) {
      const UnitRows rows[2] = {rows_at(row, height), rows_at(row + height, height)};
      MultiplyColumns<T, 2>(tiles, g, rows, height, c, ahead);
    } else {
      const UnitRows rows[1] = {rows_at(row, height)};
      MultiplyColumns<T, 1>(tiles, g, rows, height, c, ahead);
    }
    t += is_pair ? 2 : 1;
    row += is_pair ? 2 * height : height;
    ahead.distance += 64 * ahead.n;
  }
}

// ------------------------------------------------------------------ few rows, by vectors

// RowPanel reads a panel of B that lies in rows, GroupPanel one in column groups, whose numbers it
// rounds to bf16: even columns first, then odd ones. Each step asks the memory for a line of what
// is read next, in the order in which it lies there.
template <class V>
struct RowPanel {
  const uint16_t* p;
  int64_t stride;
  const char* next;
  void Load(int64_t kk, typename V::Vec* two) const {
    __builtin_prefetch(next + kk * kLine, 0, 2);  // into L2: L1 has room for few requests
    V::LoadParted(p + kk * stride, two);
  }
  static constexpr int64_t kLine = 64;  // bytes, as many as the panel has in a row
};
template <class V>
struct GroupPanel {
  CodedPanel<V> codes;
  int64_t stride;
  const char* next;
  int64_t next_step;
  void Load(int64_t kk, typename V::Vec* two) const {
    __builtin_prefetch(next + kk * next_step);
    codes.Widen(kk, stride, two);
    V::RoundParted(two);
  }
};

// Widens n numbers of a block of steps.
template <class V>
[[gnu::always_inline]] inline void Widen(const uint16_t* p, int64_t n, float* out) {
  if (n == kPairSteps) {
    for (int64_t i = 0; i < kPairSteps; i += V::kLanes) V::Store(out + i, V::Load(p + i));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{p[i]} << 16;
    __builtin_memcpy(out + i, &bits, sizeof(bits));
  }
}

// Multiplies kRows rows by a panel.
template <class V, int kRows, class P>
inline void MultiplyInBlocks(const GemmArgs& g, const uint16_t* a, const P& panel, float* c) {
  const bool adds = g.into == GemmArgs::Into::kAccumulate;
  typename V::Vec sums[kRows][2];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    for (int h = 0; h < 2; ++h) {
      sums[i][h] = adds ? V::Load(c + i * g.ldc + h * V::kLanes) : V::Zero();
    }
    V::Part(sums[i]);
  }
  for (int64_t first = 0; first < g.k; first += kPairSteps) {
    const int64_t end = first + kPairSteps < g.k ? first + kPairSteps : g.k;
    float left[kRows][kPairSteps];
    for (int i = 0; i < kRows; ++i) Widen<V>(a + i * g.lda + first, end - first, left[i]);
    typename V::Vec parts[2][kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      for (int h = 0; h < 2; ++h) parts[0][i][h] = parts[1][i][h] = V::Zero();
    }
    const auto add = [&](int64_t kk, typename V::Vec(&to)[kRows][2]) {
      typename V::Vec two[2];
      panel.Load(kk, two);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const auto one = V::Set1(left[i][kk - first]);
        to[i][0] = V::FlushedFma(one, two[0], to[i][0]);
        to[i][1] = V::FlushedFma(one, two[1], to[i][1]);
      }
    };
    int64_t kk = first;
    for (; kk + 2 <= end; kk += 2) {
      add(kk, parts[0]);
      add(kk + 1, parts[1]);
    }
    if (kk < end) add(kk, parts[0]);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      for (int h = 0; h < 2; ++h) {
        if (end - first < kPairSteps) {  // a tile adds products of zeros: -0 becomes 0
          parts[0][i][h] = V::Add(parts[0][i][h], V::Zero());
          parts[1][i][h] = V::Add(parts[1][i][h], V::Zero());
        }
        sums[i][h] = V::FlushedAdd(sums[i][h], V::FlushedAdd(parts[0][i][h], parts[1][i][h]));
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    V::Join(sums[i]);
    for (int h = 0; h < 2; ++h) V::Store(c + i * g.ldc + h * V::kLanes, sums[i][h]);
  }
}

// `panel_at(col)` returns the panel of columns from `col` on.
template <class V, class At>
[[gnu::noinline]] void MultiplyFewRows(const GemmArgs& g, const At& panel_at) {
  int64_t row = 0;
  const auto multiply = [&](auto rows) {
    for (int64_t col = 0; col < g.n_cols; col += 2 * V::kLanes) {
      MultiplyInBlocks<V, rows.value>(g, static_cast<const uint16_t*>(g.a) + row * g.lda,
                                      panel_at(col), g.c + row * g.ldc + col);
    }
    row += rows.value;
  };
  while (row + 3 <= g.n_rows) multiply(Number<3>());
  if (row + 2 <= g.n_rows) multiply(Number<2>());
  if (row < g.n_rows) multiply(Number<1>());
}

template <class V>
void GemmRowPairsInBlocks(const GemmArgs& g, const void* next_b) {
  [[maybe_unused]] const typename V::FlushScope flush;
  const auto* b = static_cast<const uint16_t*>(g.b);
  const auto* next = static_cast<const char*>(next_b == nullptr ? b : next_b);
  MultiplyFewRows<V>(g, [&](int64_t col) -> RowPanel<V> {
    const int64_t panel = col / (2 * V::kLanes);
    return {b + panel * g.b_panel_stride, g.b_row_stride, next + panel * g.k * RowPanel<V>::kLine};
  });
}

template <class V>
void GroupedGemmInBlocks(const GemmArgs& g, const ColumnGroups& b, const ReadNext& next) {
  [[maybe_unused]] const typename V::FlushScope flush;
  const auto* from = static_cast<const char*>(next.data);
  const int64_t n_panels = g.n_cols / (2 * V::kLanes), step = next.size_bytes / n_panels / g.k;
  MultiplyFewRows<V>(g, [&](int64_t col) -> GroupPanel<V> {
    return {{b, col}, b.row_stride, from + next.size_bytes * col / g.n_cols, step};
  });
}

// Returns the table of a vector type that rounds rows, with products by tiles T.
template <class V, class T>
constexpr KernelTable TableWithTiles(const char* name) {
  static_assert(V::kLanes == 16 && V::kHalves == 1);
  KernelTable t = Table<V>(name);
  t.has_matrix_unit = true;
  t.gemm_bf16_pairs = GemmPairsByTiles<T>;
  t.gemm_bf16_row_pairs = GemmRowPairsInBlocks<V>;
  t.grouped_gemm_pairs = GroupedGemmInBlocks<V>;
  t.attend_pairs = AttendPairs<V, T>;
  t.multiply_codes_in_tiles = MultiplyCodesInTiles<V, T>;
  return t;
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TILE_PRODUCTS_INL_H_
