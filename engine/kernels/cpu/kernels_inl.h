// The kernels' source, compiled once per instruction set: each kernels_<isa>.cc defines a vector
// type V and instantiates Table<V>. Nothing here may call an inline function of another header: the
// linker would be free to keep the copy compiled for the widest instruction set.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/code_rows_inl.h"
#include "engine/kernels/cpu/coded_inl.h"
#include "engine/kernels/cpu/double_inl.h"
#include "engine/kernels/cpu/largest_inl.h"
#include "engine/kernels/cpu/levels_inl.h"
#include "engine/kernels/cpu/limits_inl.h"
#include "engine/kernels/cpu/products_inl.h"
#include "engine/kernels/cpu/quantized_inl.h"
#include "engine/kernels/cpu/softmax_inl.h"
#include "engine/kernels/cpu/taylor_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

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

[[gnu::always_inline]] inline uint16_t RoundToBf16(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, sizeof(u));
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

template <class V>
void ToBf16(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  if constexpr (V::kHalves == 1) {
    constexpr int64_t kStep = 2 * V::kLanes;
    for (; i + kStep <= n; i += kStep) {
      const typename V::Vec two[2] = {V::Load(x + i), V::Load(x + i + V::kLanes)};
      if (!V::RoundsExactly(two)) {
        for (int64_t j = i; j < i + kStep; ++j) out[j] = RoundToBf16(x[j]);
        continue;
      }
      V::StoreRow(out + i, V::RoundRow(two));
    }
  }
  for (; i < n; ++i) out[i] = RoundToBf16(x[i]);
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
  t.code_row = CodeRow<V>;
  t.multiply_codes = MultiplyCodes<V>;
  t.grouped_gemm = GroupedGemm<V, GroupedFloats<V>>;
  t.widen_groups = WidenGroups<V>;
  t.rounds_activations = sizeof(typename V::Activation) == sizeof(uint16_t);
  t.gemm_bf16_pairs = GemmPairs<V>;
  if constexpr (V::kHalves == 1) {
    t.pack_pairs = PackPairs<V>;
    t.grouped_gemm_pairs = GroupedGemm<V, GroupedPairs<V>>;
    t.widen_group_pairs = WidenGroupPairs<V>;
    t.gemm_bf16_row_pairs = GemmRowPairs<V>;
    t.weigh_rows = WeighRows<V>;
  }
  t.dot_rows_f32 = DotRows<V, float>;
  t.dot_rows_bf16 = DotRows<V, uint16_t>;
  t.dot_rows_int8 = DotRows<V, int8_t>;
  t.rms_norm = RmsNorm<V>;
  t.silu_mul = SiluMul<V>;
  t.add = Add<V>;
  t.scale = Scale<V>;
  t.rope = Rope<V>;
  t.rotate_columns_f32 = RotateColumns<V, float>;
  t.rotate_columns_bf16 = RotateColumns<V, uint16_t>;
  t.softmax_update = UpdateSoftmaxInPlace<V>;
  t.lane_maxima = LaneMaxima<V>;
  t.key_range = FindKeyRange<V>;
  t.find_not_below = FindNotBelow<V>;
  t.taylor_weights = TaylorWeights<V>;
  t.turned_products = TurnedProducts<V>;
  t.to_bf16 = ToBf16<V>;
  t.unpack_codes = UnpackCodes<V>;
  t.widen_int4 = WidenInt4<V>;
  t.score_levels = ScoreLevels<V>;
  t.read_levels = ReadLevels<V>;
  t.add_scaled_f64 = AddScaledF64<V>;
  t.add_two_scaled_f64 = AddTwoScaledF64<V>;
  t.rotate_f64 = RotateF64<V>;
  t.fma_chains = FmaChains<V>;
  t.read_sum = ReadSum<V>;
  return t;
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_KERNELS_INL_H_
