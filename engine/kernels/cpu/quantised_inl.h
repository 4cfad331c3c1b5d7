// Products with quantised tiles, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_QUANTISED_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_QUANTISED_INL_H_

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// kRows rows times kPanels panels, each of which knows its group. One accumulator per output, steps
// in order, as in Gemm: hence the same bits.
template <class V, int kRows, int kPanels>
inline void GroupedTile(const GroupedGemmArgs& g, int64_t row, int64_t panel) {
  constexpr int64_t kPanel = 2 * V::kLanes, kGroup = 32;
  const float* a[kPanels];
  const int8_t* b[kPanels];
  float* c[kPanels];
  typename V::Vec acc[kRows][kPanels][2];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const int64_t column = (panel + p) * kPanel, group = column / kGroup;
    a[p] = g.a + group * g.a_group + row * g.lda;
    b[p] = g.b + group * g.b_group + column % kGroup;
    c[p] = g.c + row * g.ldc + column;
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      acc[i][p][0] = V::Load(c[p] + i * g.ldc);
      acc[i][p][1] = V::Load(c[p] + i * g.ldc + V::kLanes);
    }
  }
  // Each panel of the first rows fetches its share, so that memory is asked evenly.
  const int64_t n_panels = g.n_cols / kPanel, all = row == 0 ? g.next_bytes : 0;
  const auto* next = static_cast<const char*>(g.next) + all * panel / n_panels;
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

// As many panels at once as hide the latency of one chain of FMAs.
template <class V, int kRows>
inline void GroupedRows(const GroupedGemmArgs& g, int64_t row) {
  constexpr int kPanels = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  const int64_t n_panels = g.n_cols / (2 * V::kLanes);
  int64_t panel = 0;
  for (; panel + kPanels <= n_panels; panel += kPanels) {
    GroupedTile<V, kRows, kPanels>(g, row, panel);
  }
  for (; panel < n_panels; ++panel) GroupedTile<V, kRows, 1>(g, row, panel);
}

template <class V>
void GroupedGemm(const GroupedGemmArgs& g) {
  int64_t row = 0;
  for (; row + 6 <= g.n_rows; row += 6) GroupedRows<V, 6>(g, row);
  for (; row + 3 <= g.n_rows; row += 3) GroupedRows<V, 3>(g, row);
  for (; row < g.n_rows; ++row) GroupedRows<V, 1>(g, row);
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

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_QUANTISED_INL_H_
