// Loops over rows of doubles, a part of kernels_inl.h: see its first lines. Compilers vectorize
// them; products and sums are not contracted, so that every instruction set gives the same bits.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_DOUBLE_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_DOUBLE_INL_H_

#include <cstdint>

namespace lowkey::cpu {

template <class V>
void AddScaledF64(double a, const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

template <class V>
void AddTwoScaledF64(double a0, const double* x0, double a1, const double* x1, double* y,
                     int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += a0 * x0[i] + a1 * x1[i];
}

template <class V>
void RotateF64(double c, double s, double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double h = y[i];
    y[i] = s * x[i] + c * h;
    x[i] = c * x[i] - s * h;
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_DOUBLE_INL_H_
