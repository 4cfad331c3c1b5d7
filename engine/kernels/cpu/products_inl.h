// Matrix products and rows of dot products, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_PRODUCTS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_PRODUCTS_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/numbers_inl.h"
#include "engine/kernels/cpu/quantized_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// The accumulators of one tile: kRows rows times kPanels column panels (two vectors each). One
// accumulator per output, steps in order: this is what makes a row's bits independent of kRows and
// kPanels.
// kParted: a panel's even columns lie in its first vector and the odd ones in the second, as
// V::LoadParted widens them.
template <class V, int kRows, int kPanels, bool kParted>
struct Tile {
  static constexpr int kVecs = 2 * kPanels;
  static constexpr int64_t kPanel = 2 * V::kLanes;
  typename V::Vec acc[kRows][kVecs];

  inline void Begin(const float* c, int64_t ldc, GemmArgs::Into into) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const bool add = into == GemmArgs::Into::kAccumulate;
        const float* at = c + i * ldc + p * kPanel;
        acc[i][2 * p] = add ? V::Load(at) : V::Zero();
        acc[i][2 * p + 1] = add ? V::Load(at + V::kLanes) : V::Zero();
        if constexpr (kParted) V::Part(acc[i] + 2 * p);
      }
    }
  }

  inline void End(float* c, int64_t ldc) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        typename V::Vec* two = acc[i] + 2 * p;
        if constexpr (kParted) V::Join(two);
        V::Store(c + i * ldc + p * kPanel, two[0]);
        V::Store(c + i * ldc + p * kPanel + V::kLanes, two[1]);
      }
    }
  }
};

// Loads two vectors of a row of B; of bf16 the even elements, then the odd ones.
template <class V, class B>
inline void LoadTwo(const B* b, typename V::Vec* two) {
  if constexpr (sizeof(B) == sizeof(uint16_t)) {
    V::LoadParted(b, two);
  } else {
    two[0] = V::Load(b);
    two[1] = V::Load(b + V::kLanes);
  }
}

// A tile's number among a product's row tiles, and the matrix that is multiplied next. Passed by
// reference: a copy of three words goes through the stack and stalls each tile (5% of a product).
struct TileIndex {
  int64_t i;
  int64_t n_tiles;
  const void* next_b;
};

// Rows of packed tiles lie side by side. A processor that multiplies by a lane of a vector takes
// four of them at once; returns the first row that it takes alone.
template <class V, int kRows, LeftLayout kLayout>
constexpr int FirstAlone() {
  return V::kTakesLanes && kLayout == LeftLayout::kTiles ? kRows / 4 * 4 : 0;
}

template <class V, class B, int kRows, int kPanels, LeftLayout kLayout>
inline void GemmTile(const GemmArgs& g, const float* a, const B* b, float* c,
                     const TileIndex& index) {
  Tile<V, kRows, kPanels, sizeof(B) == sizeof(uint16_t)> tile;
  tile.Begin(c, g.ldc, g.into);
  constexpr int kFirstAlone = FirstAlone<V, kRows, kLayout>();
  constexpr int64_t kLine = 64, kPanelBytes = 2 * V::kLanes * sizeof(B);
  const auto* next = static_cast<const char*>(index.next_b);
  const int64_t to_next = next == nullptr ? 0 : next - static_cast<const char*>(g.b);
  for (int64_t kk = 0; kk < g.k; ++kk) {
    const B* row = b + kk * g.b_row_stride;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const B* panel = row + p * g.b_panel_stride;
      // More rows than these give the memory time enough.
      if constexpr (kRows <= 4) {
        if (p * kPanelBytes % kLine == 0) {
          __builtin_prefetch(reinterpret_cast<const char*>(panel) + to_next);
        }
      }
      typename V::Vec bv[2];
      LoadTwo<V>(panel, bv);
      if constexpr (V::kTakesLanes && kLayout == LeftLayout::kTiles) {
        ForNumbers<kRows / 4>([&](auto quad) {
          const auto four = V::LoadFour(a + kk * kRows + 4 * quad.value);
          ForNumbers<4>([&](auto lane) {
            auto& acc = tile.acc[4 * quad.value + lane.value];
            V::template AddLane<lane.value>(four, bv[0], acc[2 * p]);
            V::template AddLane<lane.value>(four, bv[1], acc[2 * p + 1]);
          });
        });
      }
#pragma GCC unroll 16
      for (int i = kFirstAlone; i < kRows; ++i) {
        const float* left = kLayout == LeftLayout::kTiles ? a + kk * kRows + i : a + i * g.lda + kk;
        const typename V::Vec av = V::Set1(*left);
        V::AddProduct(av, bv[0], tile.acc[i][2 * p]);
        V::AddProduct(av, bv[1], tile.acc[i][2 * p + 1]);
      }
    }
  }
  tile.End(c, g.ldc);
}

// Computes one tile over pairs of rows of B: pairs in order, and within a pair the even row first,
// or both at once (one half) where V multiplies bf16 pairs. Widening reads a pair twice: registers
// are scarcer than loads.
template <class V, int kRows, int kPanels, LeftLayout kLayout>
inline void GemmPairsTile(const GemmArgs& g, const typename V::Activation* a, const uint16_t* b,
                          float* c, const TileIndex& index) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  // Within a tile the two steps of a pair are neighbors in bf16, kRows apart in fp32.
  constexpr bool kPairwise = V::kHalves == 1;
  constexpr int kFirstAlone = FirstAlone<V, kRows, kLayout>();
  Tile<V, kRows, kPanels, false> tile;
  tile.Begin(c, g.ldc, g.into);
  // Each tile prefetches its share of the next matrix, so that memory is asked evenly.
  const auto* next = (index.next_b != nullptr ? static_cast<const uint16_t*>(index.next_b) : b) +
                     index.i * g.k * kPanel / index.n_tiles;
  const int64_t next_step = 2 * kPanel / index.n_tiles;
  for (int64_t kk = 0; kk < g.k; kk += 2) {
    const uint16_t* pairs = b + kk * kPanel;
    __builtin_prefetch(next);
    next += next_step;
#pragma GCC unroll 2
    for (int half = 0; half < V::kHalves; ++half) {
      typename V::Half bv[2 * kPanels];
#pragma GCC unroll 8
      for (int j = 0; j < 2 * kPanels; ++j) {
        bv[j] = V::LoadHalf(pairs + (j / 2) * g.b_panel_stride + (j % 2) * 2 * V::kLanes, half);
      }
      if constexpr (kFirstAlone > 0) {
        const typename V::Activation* left = kPairwise ? a + kk * kRows : a + (kk + half) * kRows;
        ForNumbers<kRows / 4>([&](auto quad) {
          const auto four = V::LoadFour(left + (kPairwise ? 8 : 4) * quad.value);
          ForNumbers<4>([&](auto lane) {
#pragma GCC unroll 8
            for (int j = 0; j < 2 * kPanels; ++j) {
              V::template AddLane<lane.value>(four, bv[j],
                                              tile.acc[4 * quad.value + lane.value][j]);
            }
          });
        });
      }
#pragma GCC unroll 16
      for (int i = kFirstAlone; i < kRows; ++i) {
        const typename V::Activation* left = kLayout == LeftLayout::kRows
                                                 ? a + i * g.lda + kk + half
                                             : kPairwise ? a + kk * kRows + 2 * i
                                                         : a + (kk + half) * kRows + i;
        const auto av = V::SetHalf(left);
#pragma GCC unroll 8
        for (int j = 0; j < 2 * kPanels; ++j) {
          tile.acc[i][j] = V::FmaHalf(av, bv[j], tile.acc[i][j]);
        }
      }
    }
  }
  tile.End(c, g.ldc);
}

// Computes what GemmPairsTile does, of B in rows.
template <class V, int kRows, int kPanels>
inline void GemmRowPairsTile(const GemmArgs& g, const uint16_t* a, const uint16_t* b, float* c,
                             const TileIndex& index) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  static const uint16_t kZeros[kPanel] = {};
  Tile<V, kRows, kPanels, false> tile;
  tile.Begin(c, g.ldc, g.into);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) V::PartBlocks(tile.acc[i] + 2 * p);
  }
  const int64_t to_next = index.next_b == nullptr ? 0
                                                  : static_cast<const uint16_t*>(index.next_b) -
                                                        static_cast<const uint16_t*>(g.b);
  for (int64_t kk = 0; kk < g.k; kk += 2) {
    const uint16_t* even = b + kk * g.b_row_stride;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint16_t* panel = even + p * kPanel;
      __builtin_prefetch(panel + to_next);
      __builtin_prefetch(panel + to_next + g.b_row_stride);
      typename V::Half bv[2];
      const uint16_t* odd = kk + 1 < g.k ? panel + g.b_row_stride : kZeros;
      V::PairRows(V::LoadRow(panel), V::LoadRow(odd), bv);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const auto av = V::SetHalf(a + i * g.lda + kk);
        tile.acc[i][2 * p] = V::FmaHalf(av, bv[0], tile.acc[i][2 * p]);
        tile.acc[i][2 * p + 1] = V::FmaHalf(av, bv[1], tile.acc[i][2 * p + 1]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) V::JoinBlocks(tile.acc[i] + 2 * p);
  }
  tile.End(c, g.ldc);
}

// Few rows need several panels at once: one chain of FMAs waits four cycles a step, eight chains
// hide it. (Three rows of two panels would need more registers than AVX2 has.)
template <int kRows>
constexpr int PanelsFor() {
  return kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
}

// A kind of product: how a tile is computed, and how steps of A and B are addressed.
template <class V, class B, LeftLayout kLayout>
struct PlainProduct {
  using Left = float;
  using Right = B;
  template <int kRows, int kPanels>
  static void Compute(const GemmArgs& g, const Left* a, const Right* b, float* c,
                      const TileIndex& tile) {
    GemmTile<V, B, kRows, kPanels, kLayout>(g, a, b, c, tile);
  }
};

template <class V, LeftLayout kLayout>
struct PairsProduct {
  using Left = typename V::Activation;
  using Right = uint16_t;
  template <int kRows, int kPanels>
  static void Compute(const GemmArgs& g, const Left* a, const Right* b, float* c,
                      const TileIndex& tile) {
    GemmPairsTile<V, kRows, kPanels, kLayout>(g, a, b, c, tile);
  }
};

template <class V>
struct RowPairsProduct {
  using Left = uint16_t;
  using Right = uint16_t;
  template <int kRows, int kPanels>
  static void Compute(const GemmArgs& g, const Left* a, const Right* b, float* c,
                      const TileIndex& tile) {
    GemmRowPairsTile<V, kRows, kPanels>(g, a, b, c, tile);
  }
};

template <class V, class P, int kRows>
void ComputeRows(const GemmArgs& g, const typename P::Left* a, float* c, const TileIndex& tile) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  constexpr int kPanels = PanelsFor<kRows>();
  const auto* b = static_cast<const typename P::Right*>(g.b);
  int64_t col = 0;
  for (; col + kPanels * kPanel <= g.n_cols; col += kPanels * kPanel) {
    P::template Compute<kRows, kPanels>(g, a, b + col / kPanel * g.b_panel_stride, c + col, tile);
  }
  if constexpr (kPanels > 1) {
    for (; col < g.n_cols; col += kPanel) {
      P::template Compute<kRows, 1>(g, a, b + col / kPanel * g.b_panel_stride, c + col, tile);
    }
  }
}

template <class V, class P, int kRows>
void ComputeRowsOf(int64_t n_rows, const GemmArgs& g, const typename P::Left* a, float* c,
                   const TileIndex& tile) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return ComputeRowsOf<V, P, kRows - 1>(n_rows, g, a, c, tile);
  }
  ComputeRows<V, P, kRows>(g, a, c, tile);
}

template <class V, class P>
void ComputeProduct(const GemmArgs& g, const void* next_b) {
  // These are NumTiles and NextTileRows of kernels.h: see the top of this file.
  const int64_t n_tiles = (g.n_rows + V::kMaxRows - 1) / V::kMaxRows;
  int64_t row = 0;
  for (int64_t t = 0; t < n_tiles; ++t) {
    const int64_t rows = (g.n_rows - row) / (n_tiles - t);
    const int64_t begin = g.a_layout == LeftLayout::kTiles ? g.k_begin * rows : 0;
    const auto* a = static_cast<const typename P::Left*>(g.a) + row * g.lda + begin;
    ComputeRowsOf<V, P, V::kMaxRows>(rows, g, a, g.c + row * g.ldc, {t, n_tiles, next_b});
    row += rows;
  }
}

template <class V, class B>
void Gemm(const GemmArgs& g, const void* next_b) {
  if (g.a_layout == LeftLayout::kTiles) {
    ComputeProduct<V, PlainProduct<V, B, LeftLayout::kTiles>>(g, next_b);
  } else {
    ComputeProduct<V, PlainProduct<V, B, LeftLayout::kRows>>(g, next_b);
  }
}

template <class V>
void GemmPairs(const GemmArgs& g, const void* next_b) {
  if (g.a_layout == LeftLayout::kTiles) {
    ComputeProduct<V, PairsProduct<V, LeftLayout::kTiles>>(g, next_b);
  } else {
    ComputeProduct<V, PairsProduct<V, LeftLayout::kRows>>(g, next_b);
  }
}

template <class V>
void GemmRowPairs(const GemmArgs& g, const void* next_b) {
  ComputeProduct<V, RowPairsProduct<V>>(g, next_b);
}

template <class V>
void PackPairs(const PackPairsArgs& p) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  static const uint16_t kZeros[kPanel] = {};
  uint16_t* out = p.out;
  for (int64_t col = 0; col < p.n_cols; col += kPanel) {
    int64_t row = 0;
    for (; row < p.n_rows; row += 2, out += 2 * kPanel) {
      const uint16_t* even = p.rows + row * p.stride + col;
      const uint16_t* odd = row + 1 < p.n_rows ? even + p.stride : kZeros;
      V::Interleave(V::LoadRow(even), V::LoadRow(odd), out);
    }
    out = PadPairs<V>(row, p.k_multiple, out);
  }
}

// Computes kRows times kDots dot products at once, so that their chains hide each other's latency
// and rows share the loads of b. Each product is one chain, whatever stands beside it.
template <class V, class B, int kRows, int kDots>
inline void DotTile(const DotRowsArgs& g, const float* a, const B* b, float* out) {
  typename V::Vec s[kRows][kDots];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDots; ++j) s[i][j] = V::Zero();
  }
  for (int64_t kk = 0; kk < g.k; kk += 2 * V::kLanes) {
    typename V::Vec av[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      LoadTwo<V>(a + i * g.lda + kk, av[i]);
      if constexpr (sizeof(B) == sizeof(uint16_t)) V::Part(av[i]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kDots; ++j) {
      typename V::Vec bv[2];
      LoadTwo<V>(b + j * g.k + kk, bv);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        s[i][j] = V::Fma(av[i][0], bv[0], s[i][j]);
        s[i][j] = V::Fma(av[i][1], bv[1], s[i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDots; j += kDots < 4 ? 1 : 4) {
      if constexpr (kDots < 4) {
        out[i * g.ld_out + j] += V::Sum(s[i][j]);
      } else {
        V::AddSums(s[i] + j, out + i * g.ld_out + j);
      }
    }
  }
}

template <class V, class B, int kRows>
inline void DotRowsOf(const DotRowsArgs& g, int64_t row) {
  const auto* b = static_cast<const B*>(g.b);
  const float* a = g.a + row * g.lda;
  float* out = g.out + row * g.ld_out;
  int64_t j = 0;
  if constexpr (kRows == 1) {
    for (; j + 8 <= g.n_dots; j += 8) DotTile<V, B, 1, 8>(g, a, b + j * g.k, out + j);
  }
  for (; j + 4 <= g.n_dots; j += 4) DotTile<V, B, kRows, 4>(g, a, b + j * g.k, out + j);
  for (; j + 2 <= g.n_dots; j += 2) DotTile<V, B, kRows, 2>(g, a, b + j * g.k, out + j);
  for (; j < g.n_dots; ++j) DotTile<V, B, kRows, 1>(g, a, b + j * g.k, out + j);
}

template <class V, class B>
void DotRows(const DotRowsArgs& g) {
  int64_t i = 0;
  // Takes pairs of rows, and three at once where three are left.
  for (; i + 2 <= g.n_rows && i + 3 != g.n_rows; i += 2) DotRowsOf<V, B, 2>(g, i);
  for (; i + 3 <= g.n_rows; i += 3) DotRowsOf<V, B, 3>(g, i);
  for (; i < g.n_rows; ++i) DotRowsOf<V, B, 1>(g, i);
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_PRODUCTS_INL_H_
