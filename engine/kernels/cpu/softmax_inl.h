// The exponential and the online softmax, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_SOFTMAX_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_SOFTMAX_INL_H_

#include <cstdint>

#include "engine/kernels/cpu/numbers_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

template <class V>
void Scale(float s, float* x, int64_t n) {
  const int64_t whole = n / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes)
    V::Store(x + i, V::Mul(V::Load(x + i), V::Set1(s)));
  for (int64_t i = whole; i < n; ++i) x[i] *= s;
}

constexpr float kExpLow =
    -87.0f;  // below it exp is taken as 0: the smallest normal floats are reached here
constexpr float kExpHigh = 88.0f;

// Returns exp(x) to 2 units in the last place, 0 below kExpLow: x = n ln 2 + r, a polynomial in r,
// times 2^n.
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

template <class V>
inline float FirstLane(typename V::Vec x) {
  float lanes[V::kLanes];
  V::Store(lanes, x);
  return lanes[0];
}

// The same for the odd elements at the end of a row.
template <class V>
inline float ExpScalar(float x) {
  return FirstLane<V>(Exp<V>(V::Set1(x)));
}

// `weigh` turns the scores into weights exp(score - shift), and returns their sums by lanes.
template <class V, class Weigh>
inline SoftmaxUpdate UpdateSoftmax(const float* scores, int64_t n, SoftmaxState* state,
                                   const Weigh& weigh) {
  auto top = V::Set1(state->max);
  for (int64_t i = 0; i < n; i += V::kLanes) top = V::Max(top, V::Load(scores + i));
  const float new_max = V::ReduceMax(top);
  const bool is_hidden = new_max == -__builtin_inff();  // no score is visible yet
  const float added = V::Sum(weigh(V::Set1(is_hidden ? 0.0f : new_max)));
  if (is_hidden) return {1, 0};
  const float factor = state->max == new_max ? 1.0f : ExpScalar<V>(state->max - new_max);
  state->sum = FirstLane<V>(V::Fma(V::Set1(state->sum), V::Set1(factor), V::Set1(added)));
  state->max = new_max;
  return {factor, added};
}

template <class V>
SoftmaxUpdate UpdateSoftmaxInPlace(float* scores, int64_t n, SoftmaxState* state) {
  return UpdateSoftmax<V>(scores, n, state, [=](const typename V::Vec& shift) {
    auto sum = V::Zero();
    for (int64_t i = 0; i < n; i += V::kLanes) {
      const auto weights = Exp<V>(V::Sub(V::Load(scores + i), shift));
      V::Store(scores + i, weights);
      sum = V::Add(sum, weights);
    }
    return sum;
  });
}

// Returns exp(x) to 1e-5 of itself for x <= 0, enough for a number that is rounded to bf16; 0 where
// that is below 2^-125. Half of its operations are additions: a processor whose matrix unit is at
// work adds twice as many vectors as it multiplies.
template <class V>
inline typename V::Vec RoughExp(typename V::Vec x) {
  constexpr float kLog2E = 1.44269504f, kLowest = -125.0f;
  const auto to_integer = V::Set1(0x1.8p23f);  // added and taken off, it rounds
  const auto y = V::Mul(x, V::Set1(kLog2E));
  const auto n = V::Sub(V::Add(y, to_integer), to_integer);
  const auto f = V::Sub(y, n);
  // p is the polynomial of degree 4 with the least relative error for 2^f, |f| <= 1/2.
  auto p = V::Fma(V::Set1(0.00957010198f), f, V::Set1(0.0559178609f));
  p = V::Fma(p, f, V::Set1(0.240247448f));
  p = V::Fma(p, f, V::Set1(0.693121815f));
  p = V::Fma(p, f, V::Set1(0.999999261f));
  return V::ZeroBelow(V::ScalePow2(p, n), y, kLowest);
}

// Writes the weights exp(score - shift) of a row, rounded to bf16, and returns the sums of the
// rounded ones by lanes. n is a multiple of 2 * kLanes.
template <class V>
inline typename V::Vec WeighToBf16(const float* scores, int64_t n, const typename V::Vec& shift,
                                   uint16_t* weights) {
  auto sum = V::Zero();
#pragma GCC unroll 2
  for (int64_t i = 0; i < n; i += 2 * V::kLanes) {
    typename V::Vec two[2] = {V::Load(scores + i), V::Load(scores + i + V::kLanes)};
    for (auto& x : two) x = RoughExp<V>(V::Sub(x, shift));
    V::StoreRow(weights + i, V::RoundRow(two));
    V::LoadParted(weights + i, two);
    sum = V::Add(sum, V::Add(two[0], two[1]));
  }
  return sum;
}

template <class V>
inline SoftmaxUpdate UpdateSoftmaxToBf16(const float* scores, int64_t n, SoftmaxState* state,
                                         uint16_t* weights) {
  return UpdateSoftmax<V>(scores, n, state, [=](const typename V::Vec& shift) {
    return WeighToBf16<V>(scores, n, shift, weights);
  });
}

inline constexpr int64_t kRowsAtOnce = 16;

// WeighScratch holds what WeighRowsAtOnce keeps of its rows.
struct alignas(64) WeighScratch {
  float shifts[kRowsAtOnce], factors[kRowsAtOnce];
  float sums[kRowsAtOnce * kRowsAtOnce];  // of each row's weights, by lanes
};

// Does UpdateSoftmaxToBf16 for kRowsAtOnce rows of kPageTokens scores, to the bit, and scales `out`
// [kRowsAtOnce, n_values] by their factors. `each_row` gets a function of a row's number, and calls
// it for every row. A vector has as many lanes as there are rows.
template <class V, class EachRow>
[[gnu::always_inline]] inline void WeighRowsAtOnce(const float* scores, uint16_t* weights,
                                                   WeighScratch& rows, SoftmaxState* states,
                                                   float* out, int64_t n_values,
                                                   const EachRow& each_row) {
  typename V::Vec tops[kRowsAtOnce];
#pragma GCC unroll 16
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const float* row = scores + r * kPageTokens;
    tops[r] = V::Max(V::Max(V::Load(row), V::Load(row + 16)),
                     V::Max(V::Load(row + 32), V::Load(row + 48)));
  }
  typename V::Vec state[2] = {V::Load(&states[0].max), V::Load(&states[8].max)};
  V::Part(state);
  const auto top = V::Max(state[0], V::ReduceMaxOfRows(tops));
  // While a row sees nothing, its largest score is -inf: its weights are 0, its factor is 1.
  constexpr float kLowest = -0x1.fffffep127f;
  const auto shift = V::ZeroBelow(top, top, kLowest);
  const auto factor = Exp<V>(V::Sub(V::ZeroBelow(state[0], top, kLowest), shift));
  V::Store(rows.shifts, shift);
  V::Store(rows.factors, factor);
  uint32_t scaled = ~V::NotBelow(factor, V::Set1(1.0f)) & 0xffff;
  for (; scaled != 0; scaled &= scaled - 1) {
    const int r = __builtin_ctz(scaled);
    Scale<V>(rows.factors[r], out + r * n_values, n_values);
  }
  each_row([&](int r) __attribute__((always_inline)) {
    V::Store(rows.sums + r * kRowsAtOnce,
             WeighToBf16<V>(scores + r * kPageTokens, kPageTokens, V::Set1(rows.shifts[r]),
                            weights + r * kPageTokens));
  });
  for (int r = 0; r < kRowsAtOnce; ++r) tops[r] = V::Load(rows.sums + r * kRowsAtOnce);
  state[1] = V::Fma(state[1], factor, V::SumOfRows(tops));
  state[0] = top;
  V::Join(state);
  V::Store(&states[0].max, state[0]);
  V::Store(&states[8].max, state[1]);
}

template <class V>
void WeighRows(const WeighRowsArgs& g) {
  int64_t r = 0;
  if constexpr (V::kLanes == kRowsAtOnce) {
    WeighScratch scratch;
    for (; r + kRowsAtOnce <= g.n_rows; r += kRowsAtOnce) {
      WeighRowsAtOnce<V>(
          g.scores + r * kPageTokens, g.weights + r * kPageTokens, scratch, g.states + r,
          g.out + r * g.n_values, g.n_values, [](const auto& weigh) __attribute__((always_inline)) {
#pragma GCC unroll 1
            for (int i = 0; i < kRowsAtOnce; ++i) weigh(i);
          });
    }
  }
  for (; r < g.n_rows; ++r) {
    const float factor = UpdateSoftmaxToBf16<V>(g.scores + r * kPageTokens, kPageTokens,
                                                g.states + r, g.weights + r * kPageTokens)
                             .factor;
    if (factor != 1.0f) Scale<V>(factor, g.out + r * g.n_values, g.n_values);
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_SOFTMAX_INL_H_
