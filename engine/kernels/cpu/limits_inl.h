// Loops that measure a machine, for benchmarks; a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LIMITS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LIMITS_INL_H_

#include <cstdint>

namespace lowkey::cpu {

// Ten chains cover two FMA pipes of four or five cycles.
template <class V>
float FmaChains(int64_t n) {
  typename V::Vec acc[10];
  for (int j = 0; j < 10; ++j) acc[j] = V::Set1(static_cast<float>(j));
  const auto a = V::Set1(0.999f), b = V::Set1(0.001f);
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) acc[j] = V::Fma(acc[j], a, b);
  }
  float total = 0;
  for (int j = 0; j < 10; ++j) total += V::Sum(acc[j]);
  return total;
}

template <class V>
float ReadSum(const float* x, int64_t n) {
  typename V::Vec acc[8];
  for (int j = 0; j < 8; ++j) acc[j] = V::Zero();
  for (int64_t i = 0; i + 8 * V::kLanes <= n; i += 8 * V::kLanes) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) acc[j] = V::Add(acc[j], V::Load(x + i + j * V::kLanes));
  }
  float total = 0;
  for (int j = 0; j < 8; ++j) total += V::Sum(acc[j]);
  return total;
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LIMITS_INL_H_
