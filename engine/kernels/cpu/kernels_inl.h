// The kernels' source, compiled once per instruction set: each kernels_<isa>.cc defines a vector
// type V and instantiates Table<V>. Nothing here may call an inline function of another header: the
// linker would be free to keep the copy compiled for the widest instruction set.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/largest_inl.h"
#include "engine/kernels/cpu/limits_inl.h"
#include "engine/kernels/cpu/quantized_inl.h"
#include "engine/kernels/cpu/taylor_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// ------------------------------------------------------------------ products

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

// Two vectors of a row of B; of bf16 the even elements, then the odd ones.
template <class V, class B>
inline void LoadTwo(const B* b, typename V::Vec* two) {
  if constexpr (sizeof(B) == sizeof(uint16_t)) {
    V::LoadParted(b, two);
  } else {
    two[0] = V::Load(b);
    two[1] = V::Load(b + V::kLanes);
  }
}

template <class V, class B, int kRows, int kPanels, LeftLayout kLayout>
inline void GemmTile(const GemmArgs& g, const float* a, const B* b, float* c) {
  Tile<V, kRows, kPanels, sizeof(B) == sizeof(uint16_t)> tile;
  tile.Begin(c, g.ldc, g.into);
  constexpr int64_t kLine = 64, kPanelBytes = 2 * V::kLanes * sizeof(B);
  const int64_t to_next =
      g.next_b == nullptr ? 0 : static_cast<const char*>(g.next_b) - static_cast<const char*>(g.b);
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
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const float* left = kLayout == LeftLayout::kTiles ? a + kk * kRows + i : a + i * g.lda + kk;
        const typename V::Vec av = V::Set1(*left);
        V::AddProduct(av, bv[0], tile.acc[i][2 * p]);
        V::AddProduct(av, bv[1], tile.acc[i][2 * p + 1]);
      }
    }
  }
  tile.End(c, g.ldc);
}

// Which of a product's row tiles.
struct TileIndex {
  int64_t i;
  int64_t n_tiles;
};

// One tile over pairs of rows of B: pairs in order, and within a pair the even row first, or both
// at once (one half) where V multiplies bf16 pairs. Widening reads a pair twice: registers are
// scarcer than loads.
template <class V, int kRows, int kPanels, LeftLayout kLayout>
inline void GemmPairsTile(const GemmPairsArgs& g, const typename V::Activation* a,
                          const uint16_t* b, float* c, TileIndex index) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  // Within a tile the two steps of a pair are neighbors in bf16, kRows apart in fp32.
  constexpr bool kPairwise = V::kHalves == 1;
  Tile<V, kRows, kPanels, false> tile;
  tile.Begin(c, g.ldc, g.into);
  // Each tile fetches its share of what comes next, so that memory is asked evenly.
  const uint16_t* next =
      (g.next_b != nullptr ? g.next_b : b) + index.i * g.k * kPanel / index.n_tiles;
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
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
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

// Few rows need several panels at once: one chain of FMAs waits four cycles a step, eight chains
// hide it. (Three rows of two panels would need more registers than AVX2 has.)
template <int kRows>
constexpr int PanelsFor() {
  return kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
}

// A product of one kind: how a tile is computed and how steps of A and B are addressed.
template <class V, class B, LeftLayout kLayout>
struct PlainProduct {
  using Args = GemmArgs;
  using Left = float;
  using Right = B;
  template <int kRows, int kPanels>
  static void Compute(const Args& g, const Left* a, const Right* b, float* c, TileIndex) {
    GemmTile<V, B, kRows, kPanels, kLayout>(g, a, b, c);
  }
};

template <class V, LeftLayout kLayout>
struct PairsProduct {
  using Args = GemmPairsArgs;
  using Left = typename V::Activation;
  using Right = uint16_t;
  template <int kRows, int kPanels>
  static void Compute(const Args& g, const Left* a, const Right* b, float* c, TileIndex tile) {
    GemmPairsTile<V, kRows, kPanels, kLayout>(g, a, b, c, tile);
  }
};

template <class V>
struct BlocksProduct {
  using Args = GemmBlocksArgs;
  using Left = float;
  using Right = std::byte;
  template <int kRows, int kPanels>
  static void Compute(const Args& g, const Left* a, const Right* b, float* c, TileIndex) {
    BlocksTile<V, kRows, kPanels>(g, a, b, c);
  }
};

template <class V, class P, int kRows>
void ComputeRows(const typename P::Args& g, const typename P::Left* a, float* c, TileIndex tile) {
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
void ComputeRowsOf(int64_t n_rows, const typename P::Args& g, const typename P::Left* a, float* c,
                   TileIndex tile) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return ComputeRowsOf<V, P, kRows - 1>(n_rows, g, a, c, tile);
  }
  ComputeRows<V, P, kRows>(g, a, c, tile);
}

template <class V, class P>
void ComputeProduct(const typename P::Args& g) {
  // Not NumTiles and NextTileRows of kernels.h: see the top of this file.
  const int64_t n_tiles = (g.n_rows + V::kMaxRows - 1) / V::kMaxRows;
  int64_t row = 0;
  for (int64_t t = 0; t < n_tiles; ++t) {
    const int64_t rows = (g.n_rows - row) / (n_tiles - t);
    const int64_t begin = g.a_layout == LeftLayout::kTiles ? g.k_begin * rows : 0;
    const auto* a = static_cast<const typename P::Left*>(g.a) + row * g.lda + begin;
    ComputeRowsOf<V, P, V::kMaxRows>(rows, g, a, g.c + row * g.ldc, {t, n_tiles});
    row += rows;
  }
}

template <class V, class B>
void Gemm(const GemmArgs& g) {
  if (g.a_layout == LeftLayout::kTiles) {
    ComputeProduct<V, PlainProduct<V, B, LeftLayout::kTiles>>(g);
  } else {
    ComputeProduct<V, PlainProduct<V, B, LeftLayout::kRows>>(g);
  }
}

template <class V>
void GemmPairs(const GemmPairsArgs& g) {
  if (g.a_layout == LeftLayout::kTiles) {
    ComputeProduct<V, PairsProduct<V, LeftLayout::kTiles>>(g);
  } else {
    ComputeProduct<V, PairsProduct<V, LeftLayout::kRows>>(g);
  }
}

// kRows times kDots dot products at once, so that their chains hide each other's latency and rows
// share what is loaded of b. Each is one chain, whatever stands beside it.
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
  // Pairs, and three at once where three are left.
  for (; i + 2 <= g.n_rows && i + 3 != g.n_rows; i += 2) DotRowsOf<V, B, 2>(g, i);
  for (; i + 3 <= g.n_rows; i += 3) DotRowsOf<V, B, 3>(g, i);
  for (; i < g.n_rows; ++i) DotRowsOf<V, B, 1>(g, i);
}

// ------------------------------------------------------------------ exponential

constexpr float kExpLow =
    -87.0f;  // below it exp is taken as 0: the smallest normal floats are reached here
constexpr float kExpHigh = 88.0f;

// exp(x) to 2 units in the last place: x = n ln 2 + r, a polynomial in r, times 2^n. 0 below
// kExpLow.
template <class V>
inline typename V::Vec Exp(typename V::Vec x) {
  const auto clamped = V::Min(V::Set1(kExpHigh), V::Max(V::Set1(kExpLow), x));  // NaN passes
  const auto n = V::Round(V::Mul(clamped, V::Set1(1.44269504088896341f)));
  auto r = V::Fma(n, V::Set1(-0.693359375f), clamped);
  r = V::Fma(n, V::Set1(2.12194440e-4f), r);
  auto p = V::Set1(1.9875691500e-4f);
  p = V::Fma(p, r, V::Set1(1.3981999507e-3f));
  p = V::Fma(p, r, V::Set1(8.3334519073e-3f));
  p = V::Fma(p, r, V::Set1(4.1665795894e-2f));
  p = V::Fma(p, r, V::Set1(1.6666665459e-1f));
  p = V::Fma(p, r, V::Set1(5.0000001201e-1f));
  p = V::Fma(V::Mul(r, r), p, V::Add(r, V::Set1(1.0f)));
  return V::ZeroBelow(V::ScalePow2(p, n), x, kExpLow);
}

// Scalar twin for the odd elements at the end of a row.
template <class V>
inline float ExpScalar(float x) {
  float lanes[V::kLanes];
  V::Store(lanes, Exp<V>(V::Set1(x)));
  return lanes[0];
}

template <class V>
SoftmaxUpdate UpdateSoftmax(float* scores, int64_t n, SoftmaxState* state) {
  auto top = V::Set1(state->max);
  for (int64_t i = 0; i < n; i += V::kLanes) top = V::Max(top, V::Load(scores + i));
  const float new_max = V::ReduceMax(top);
  if (new_max == -__builtin_inff()) {  // nothing visible yet
    for (int64_t i = 0; i < n; ++i) scores[i] = 0;
    return {1, 0};
  }
  const auto shift = V::Set1(new_max);
  auto sum = V::Zero();
  for (int64_t i = 0; i < n; i += V::kLanes) {
    const auto p = Exp<V>(V::Sub(V::Load(scores + i), shift));
    V::Store(scores + i, p);
    sum = V::Add(sum, p);
  }
  const float factor = state->max == new_max ? 1.0f : ExpScalar<V>(state->max - new_max);
  const float added = V::Sum(sum);
  state->sum = state->sum * factor + added;
  state->max = new_max;
  return {factor, added};
}

// ------------------------------------------------------------------ rows

template <class V>
void RmsNorm(const float* x, const float* w, float eps, float* out, int64_t dim) {
  const int64_t whole = dim / V::kLanes * V::kLanes;
  auto acc = V::Zero();
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    const auto v = V::Load(x + i);
    acc = V::Fma(v, v, acc);
  }
  float sum = V::Sum(acc);
  for (int64_t i = whole; i < dim; ++i) sum += x[i] * x[i];
  const float inv = 1.0f / __builtin_sqrtf(sum / static_cast<float>(dim) + eps);
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    V::Store(out + i, V::Mul(V::Mul(V::Load(x + i), V::Set1(inv)), V::Load(w + i)));
  }
  for (int64_t i = whole; i < dim; ++i) out[i] = x[i] * inv * w[i];
}

template <class V>
void SiluMul(const float* gate, const float* up, float* out, int64_t n) {
  const auto one = V::Set1(1.0f);
  const int64_t whole = n / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    const auto g = V::Load(gate + i);
    const auto denominator = V::Add(one, Exp<V>(V::Sub(V::Zero(), g)));
    V::Store(out + i, V::Mul(V::Div(g, denominator), V::Load(up + i)));
  }
  for (int64_t i = whole; i < n; ++i) {
    out[i] = gate[i] / (1.0f + ExpScalar<V>(-gate[i])) * up[i];
  }
}

template <class V>
void Add(const float* x, float* y, int64_t n) {
  const int64_t whole = n / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    V::Store(y + i, V::Add(V::Load(y + i), V::Load(x + i)));
  }
  for (int64_t i = whole; i < n; ++i) y[i] += x[i];
}

template <class V>
void Scale(float s, float* x, int64_t n) {
  const int64_t whole = n / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes)
    V::Store(x + i, V::Mul(V::Load(x + i), V::Set1(s)));
  for (int64_t i = whole; i < n; ++i) x[i] *= s;
}

template <class V>
void Rope(float* x, const float* cos, const float* sin, int64_t n_heads, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t h = 0; h < n_heads; ++h) {
    float* lo = x + h * head_dim;
    float* hi = lo + half;
    for (int64_t j = 0; j < half; ++j) {
      const float a = lo[j], b = hi[j];
      lo[j] = a * cos[j] - b * sin[j];
      hi[j] = b * cos[j] + a * sin[j];
    }
  }
}

template <class V, class T>
void RotateColumns(const RotateColumnsArgs& r) {
  constexpr int64_t kColumns = 64;
  const int64_t half = r.head_dim / 2 * kColumns;
  const T* lo = static_cast<const T*>(r.x);
  const T* hi = lo + half;
  for (int64_t i = 0; i < half; i += V::kLanes) {
    const auto a = V::Load(lo + i), b = V::Load(hi + i);
    const auto c = V::Load(r.cos + i), s = V::Load(r.sin + i);
    V::Store(r.out + i, V::Sub(V::Mul(a, c), V::Mul(b, s)));
    V::Store(r.out + half + i, V::Add(V::Mul(b, c), V::Mul(a, s)));
  }
}

inline uint16_t RoundToBf16(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, sizeof(u));
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

template <class V>
void ToBf16(const float* x, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = RoundToBf16(x[i]);
}

template <class V>
constexpr KernelTable Table(const char* name) {
  KernelTable t{};
  t.name = name;
  t.max_tile_rows = V::kMaxRows;
  t.panel_columns = 2 * V::kLanes;
  t.gemm_f32 = Gemm<V, float>;
  t.gemm_bf16 = Gemm<V, uint16_t>;
  t.gemm_int8 = Gemm<V, int8_t>;
  t.gemm_int8_blocks = ComputeProduct<V, BlocksProduct<V>>;
  t.grouped_gemm_int8 = GroupedGemm<V>;
  t.rounds_activations = sizeof(typename V::Activation) == sizeof(uint16_t);
  t.gemm_bf16_pairs = GemmPairs<V>;
  t.dot_rows_f32 = DotRows<V, float>;
  t.dot_rows_bf16 = DotRows<V, uint16_t>;
  t.dot_rows_int8 = DotRows<V, int8_t>;
  t.rms_norm = RmsNorm<V>;
  t.silu_mul = SiluMul<V>;
  t.add = Add<V>;
  t.scale = Scale<V>;
  t.multiply_bf16 = MultiplyBf16<V>;
  t.rope = Rope<V>;
  t.rotate_columns_f32 = RotateColumns<V, float>;
  t.rotate_columns_bf16 = RotateColumns<V, uint16_t>;
  t.softmax_update = UpdateSoftmax<V>;
  t.lane_maxima = LaneMaxima<V>;
  t.find_not_below = FindNotBelow<V>;
  t.taylor_weights = TaylorWeights<V>;
  t.turned_products = TurnedProducts<V>;
  t.to_bf16 = ToBf16<V>;
  t.unpack_int4 = UnpackInt4<V>;
  t.fma_chains = FmaChains<V>;
  t.read_sum = ReadSum<V>;
  return t;
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_
