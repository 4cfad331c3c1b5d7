// Products with quantized tiles, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_QUANTIZED_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_QUANTIZED_INL_H_

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

struct GroupedProduct {
  const GemmArgs& g;
  const ColumnGroups& b;
  const ReadNext& next;
};

// A panel's codes and the numbers of its group.
template <class V>
struct CodedPanel {
  const int8_t* codes;
  const float *scales, *middles;

  CodedPanel(const ColumnGroups& b, int64_t column) {
    constexpr int64_t kGroup = 32;
    const int64_t group = column / kGroup;
    codes = b.codes + group * b.group_stride + column % kGroup;
    scales = b.scales + group * b.numbers_stride;
    middles = b.middles + group * b.numbers_stride;
  }

  void Widen(int64_t row, int64_t row_stride, typename V::Vec* two) const {
    const auto scale = V::Set1(scales[row]), middle = V::Set1(middles[row]);
    two[0] = V::Fma(V::Load(codes + row * row_stride), scale, middle);
    two[1] = V::Fma(V::Load(codes + row * row_stride + V::kLanes), scale, middle);
  }
};

// Multiplies the numbers in fp32, one step after the other, as Gemm does.
template <class V>
struct GroupedFloats {
  using Left = float;
  static constexpr int kSteps = 1;
  static void Begin(typename V::Vec*) {}
  static void End(typename V::Vec*) {}
  template <int kRows, int kTwos>
  static void Step(const Left* a, int64_t lda, const CodedPanel<V>& panel, int64_t kk,
                   int64_t row_stride, typename V::Vec (&acc)[kRows][kTwos], int at) {
    typename V::Vec two[2];
    panel.Widen(kk, row_stride, two);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto av = V::Set1(a[i * lda + kk]);
      acc[i][at] = V::Fma(av, two[0], acc[i][at]);
      acc[i][at + 1] = V::Fma(av, two[1], acc[i][at + 1]);
    }
  }
};

// Rounds the numbers to bf16 and multiplies two steps at once, as GemmRowPairs does.
template <class V>
struct GroupedPairs {
  using Left = uint16_t;
  static constexpr int kSteps = 2;
  static void Begin(typename V::Vec* two) { V::PartBlocks(two); }
  static void End(typename V::Vec* two) { V::JoinBlocks(two); }
  template <int kRows, int kTwos>
  static void Step(const Left* a, int64_t lda, const CodedPanel<V>& panel, int64_t kk,
                   int64_t row_stride, typename V::Vec (&acc)[kRows][kTwos], int at) {
    typename V::Vec even[2], odd[2];
    panel.Widen(kk, row_stride, even);
    panel.Widen(kk + 1, row_stride, odd);
    typename V::Half bv[2];
    V::PairRows(V::RoundRow(even), V::RoundRow(odd), bv);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const auto av = V::SetHalf(a + i * lda + kk);
      acc[i][at] = V::FmaHalf(av, bv[0], acc[i][at]);
      acc[i][at + 1] = V::FmaHalf(av, bv[1], acc[i][at + 1]);
    }
  }
};

// Computes kRows rows times kPanels panels. Each output has one accumulator and takes its steps in
// order, as in the product that P imitates: hence the same bits.
template <class V, class P, int kRows, int kPanels>
inline void GroupedTile(const GroupedProduct& product, int64_t row, int64_t panel) {
  const GemmArgs& g = product.g;
  constexpr int64_t kPanel = 2 * V::kLanes;
  const bool adds = g.into == GemmArgs::Into::kAccumulate;
  const auto* a = static_cast<const typename P::Left*>(g.a) + row * g.lda;
  float* c = g.c + row * g.ldc + panel * kPanel;
  typename V::Vec acc[kRows][2 * kPanels];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kPanels; ++j) {
      acc[i][j] = adds ? V::Load(c + i * g.ldc + j * V::kLanes) : V::Zero();
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) P::Begin(acc[i] + 2 * p);
  }
  // Each panel of the first rows prefetches its share, so that memory is asked evenly.
  const int64_t n_panels = g.n_cols / kPanel, all = row == 0 ? product.next.size_bytes : 0;
  const auto* next = static_cast<const char*>(product.next.data) + all * panel / n_panels;
  const int64_t next_step = all * kPanels / n_panels / g.k;
  for (int64_t kk = 0; kk < g.k; kk += P::kSteps) {
#pragma GCC unroll 2
    for (int i = 0; i < P::kSteps; ++i, next += next_step) __builtin_prefetch(next);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const CodedPanel<V> coded(product.b, (panel + p) * kPanel);
      P::Step(a, g.lda, coded, kk, product.b.row_stride, acc, 2 * p);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) P::End(acc[i] + 2 * p);
#pragma GCC unroll 8
    for (int j = 0; j < 2 * kPanels; ++j) {
      V::Store(c + i * g.ldc + j * V::kLanes, acc[i][j]);
    }
  }
}

// Takes as many panels at once as hide the latency of one chain of FMAs.
template <class V, class P, int kRows>
inline void GroupedRows(const GroupedProduct& product, int64_t row) {
  constexpr int kPanels = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  const int64_t n_panels = product.g.n_cols / (2 * V::kLanes);
  int64_t panel = 0;
  for (; panel + kPanels <= n_panels; panel += kPanels) {
    GroupedTile<V, P, kRows, kPanels>(product, row, panel);
  }
  for (; panel < n_panels; ++panel) GroupedTile<V, P, kRows, 1>(product, row, panel);
}

template <class V, class P>
void GroupedGemm(const GemmArgs& g, const ColumnGroups& b, const ReadNext& next) {
  const GroupedProduct product{g, b, next};
  int64_t row = 0;
  for (; row + 6 <= g.n_rows; row += 6) GroupedRows<V, P, 6>(product, row);
  for (; row + 3 <= g.n_rows; row += 3) GroupedRows<V, P, 3>(product, row);
  for (; row < g.n_rows; ++row) GroupedRows<V, P, 1>(product, row);
}

template <class V>
void WidenGroups(const ColumnGroups& b, int64_t k, int64_t n_cols, float* out) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  for (int64_t column = 0; column < n_cols; column += kPanel) {
    const CodedPanel<V> panel(b, column);
    for (int64_t row = 0; row < k; ++row) {
      typename V::Vec two[2];
      panel.Widen(row, b.row_stride, two);
      V::Store(out + row * n_cols + column, two[0]);
      V::Store(out + row * n_cols + column + V::kLanes, two[1]);
    }
  }
}

// Writes rows of zeros from `row`, an even one, to the next multiple, an even one too; returns the
// end.
template <class V>
inline uint16_t* PadPairs(int64_t row, int64_t multiple, uint16_t* out) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  const int64_t n = (multiple - row % multiple) % multiple * kPanel;
  for (int64_t i = 0; i < n; ++i) out[i] = 0;
  return out + n;
}

// Writes what PackPairs does of the numbers, rounded.
template <class V>
void WidenGroupPairs(const ColumnGroups& b, int64_t k, int64_t n_cols, uint16_t* out) {
  constexpr int64_t kPanel = 2 * V::kLanes;
  for (int64_t column = 0; column < n_cols; column += kPanel) {
    const CodedPanel<V> panel(b, column);
    for (int64_t row = 0; row < k; row += 2, out += 2 * kPanel) {
      typename V::Vec even[2], odd[2] = {V::Zero(), V::Zero()};
      panel.Widen(row, b.row_stride, even);
      if (row + 1 < k) panel.Widen(row + 1, b.row_stride, odd);
      V::Interleave(V::RoundRow(even), V::RoundRow(odd), out);
    }
    out = PadPairs<V>(k + k % 2, kPairSteps, out);
  }
}

template <class V>
void UnpackCodes(int bits, const uint8_t* x, int8_t* out, int64_t n) {
  if (bits == 4) {
    for (int64_t i = 0; i < n / 2; ++i) {
      out[i] = static_cast<int8_t>((x[i] & 15) - 8);
      out[i + n / 2] = static_cast<int8_t>((x[i] >> 4) - 8);
    }
    return;
  }
  const int64_t quarter = n / 4, eighth = n / 8;
  const int low_middle = bits == 2 ? 2 : 0;
  for (int part = 0; part < 4; ++part) {
    for (int64_t i = 0; i < quarter; ++i) {
      out[part * quarter + i] = static_cast<int8_t>((x[i] >> (2 * part) & 3) - low_middle);
    }
  }
  if (bits == 2) return;
  const uint8_t* highest = x + quarter;
  for (int part = 0; part < 8; ++part) {
    for (int64_t i = 0; i < eighth; ++i) {
      int8_t& code = out[part * eighth + i];
      code = static_cast<int8_t>(code + (highest[i] >> part & 1) * 4 - 4);
    }
  }
}

template <class V>
void WidenInt4(const uint8_t* x, const uint16_t* scales, const uint16_t* middles, float* out,
               int64_t n) {
  const int64_t half = n / 2;
  for (int64_t j = 0; j < half; j += V::kLanes) {
    int8_t low[V::kLanes], high[V::kLanes];
    for (int64_t i = 0; i < V::kLanes; ++i) {
      low[i] = static_cast<int8_t>((x[j + i] & 15) - 8);
      high[i] = static_cast<int8_t>((x[j + i] >> 4) - 8);
    }
    V::Store(out + j, V::Fma(V::Load(low), V::Load(scales + j), V::Load(middles + j)));
    V::Store(out + half + j,
             V::Fma(V::Load(high), V::Load(scales + half + j), V::Load(middles + half + j)));
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_QUANTIZED_INL_H_
