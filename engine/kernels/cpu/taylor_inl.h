// TaylorShift's kernels, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_TAYLOR_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TAYLOR_INL_H_

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// Hidden weights are 0 and the sum runs over all n weights: its order is the same for every row.
template <class V>
float TaylorWeights(float* scores, int64_t n_visible, int64_t n) {
  const auto one = V::Set1(1.0f), half = V::Set1(0.5f);
  for (int64_t i = 0; i < n_visible; i += V::kLanes) {
    const auto s = V::Load(scores + i);
    V::Store(scores + i, V::Fma(s, V::Fma(s, half, one), one));
  }
  for (int64_t i = n_visible; i < n; ++i) scores[i] = 0.0f;
  auto sum = V::Zero();
  for (int64_t i = 0; i < n; i += V::kLanes) sum = V::Add(sum, V::Load(scores + i));
  return V::Sum(sum);
}

template <class V>
void TurnedProducts(const TurnedProductsArgs& g) {
  for (int64_t i = 0; i < g.n_rows; ++i) {
    const float* x = g.x + i * g.ldx;
    float* out = g.out + i * g.ld_out;
    const float* turned = x + g.first * g.step;
    for (int64_t left = g.n_out; left > 0; left -= g.n, out += g.n, turned += g.step) {
      const int64_t n = left < g.n ? left : g.n;
      int64_t j = 0;
      for (; j + V::kLanes <= n; j += V::kLanes) {
        V::Store(out + j, V::Mul(V::Load(x + j), V::Load(turned + j)));
      }
      for (; j < n; ++j) out[j] = x[j] * turned[j];
    }
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TAYLOR_INL_H_
