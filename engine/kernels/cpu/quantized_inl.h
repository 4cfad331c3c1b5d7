// Products with quantized tiles, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_QUANTIZED_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_QUANTIZED_INL_H_

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

struct GroupedProduct {
  const GemmArgs& g;
  const ColumnGroups& groups;
  const ReadNext& next;
};

// Computes kRows rows times kPanels panels, each of its own group. Each output has one accumulator
// and takes its steps in order, as in Gemm: hence the same bits.
template <class V, int kRows, int kPanels>
inline void GroupedTile(const GroupedProduct& product, int64_t row, int64_t panel) {
  const GemmArgs& g = product.g;
  constexpr int64_t kPanel = 2 * V::kLanes, kGroup = 32;
  const float* a[kPanels];
  const int8_t* b[kPanels];
  float* c[kPanels];
  typename V::Vec acc[kRows][kPanels][2];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const int64_t column = (panel + p) * kPanel, group = column / kGroup;
    a[p] = static_cast<const float*>(g.a) + group * product.groups.a_stride + row * g.lda;
    b[p] = static_cast<const int8_t*>(g.b) + group * product.groups.b_stride + column % kGroup;
    c[p] = g.c + row * g.ldc + column;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      acc[i][p][0] = V::Load(c[p] + i * g.ldc);
      acc[i][p][1] = V::Load(c[p] + i * g.ldc + V::kLanes);
    }
  }
  // Each panel of the first rows prefetches its share, so that memory is asked evenly.
  const int64_t n_panels = g.n_cols / kPanel, all = row == 0 ? product.next.size_bytes : 0;
  const auto* next = static_cast<const char*>(product.next.data) + all * panel / n_panels;
  const int64_t next_step = all * kPanels / n_panels / g.k;
  for (int64_t kk = 0; kk < g.k; ++kk) {
    __builtin_prefetch(next);
    next += next_step;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const auto left = V::Load(b[p] + kk * g.b_row_stride);
      const auto right = V::Load(b[p] + kk * g.b_row_stride + V::kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const auto av = V::Set1(a[p][i * g.lda + kk]);
        acc[i][p][0] = V::Fma(av, left, acc[i][p][0]);
        acc[i][p][1] = V::Fma(av, right, acc[i][p][1]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      V::Store(c[p] + i * g.ldc, acc[i][p][0]);
      V::Store(c[p] + i * g.ldc + V::kLanes, acc[i][p][1]);
    }
  }
}

// Takes as many panels at once as hide the latency of one chain of FMAs.
template <class V, int kRows>
inline void GroupedRows(const GroupedProduct& product, int64_t row) {
  constexpr int kPanels = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  const int64_t n_panels = product.g.n_cols / (2 * V::kLanes);
  int64_t panel = 0;
  for (; panel + kPanels <= n_panels; panel += kPanels) {
    GroupedTile<V, kRows, kPanels>(product, row, panel);
  }
  for (; panel < n_panels; ++panel) GroupedTile<V, kRows, 1>(product, row, panel);
}

template <class V>
void GroupedGemm(const GemmArgs& g, const ColumnGroups& groups, const ReadNext& next) {
  const GroupedProduct product{g, groups, next};
  int64_t row = 0;
  for (; row + 6 <= g.n_rows; row += 6) GroupedRows<V, 6>(product, row);
  for (; row + 3 <= g.n_rows; row += 3) GroupedRows<V, 3>(product, row);
  for (; row < g.n_rows; ++row) GroupedRows<V, 1>(product, row);
}

template <class V>
void MultiplyBf16(const float* x, const uint16_t* y, float* out, int64_t n) {
  const int64_t whole = n / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    V::Store(out + i, V::Mul(V::Load(x + i), V::Load(y + i)));
  }
  for (int64_t i = whole; i < n; ++i) {
    const uint32_t wide = static_cast<uint32_t>(y[i]) << 16;
    float factor;
    __builtin_memcpy(&factor, &wide, sizeof(factor));
    out[i] = x[i] * factor;
  }
}

template <class V>
void UnpackInt4(const uint8_t* x, int8_t* out, int64_t n) {
  for (int64_t i = 0; i < n / 2; ++i) {
    out[i] = static_cast<int8_t>((x[i] & 15) - 8);
    out[i + n / 2] = static_cast<int8_t>((x[i] >> 4) - 8);
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
