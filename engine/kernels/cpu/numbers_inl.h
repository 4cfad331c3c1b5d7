// Loops over numbers that are known when the code is compiled, a part of kernels_inl.h: see its
// first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_NUMBERS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_NUMBERS_INL_H_

namespace lowkey::cpu {

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Calls f(Number<0>()), f(Number<1>()), ... f(Number<kCount - 1>()).
template <int kCount, int kFirst = 0, class F>
[[gnu::always_inline]] inline void ForNumbers(const F& f) {
  if constexpr (kFirst < kCount) {
    f(Number<kFirst>());
    ForNumbers<kCount, kFirst + 1>(f);
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_NUMBERS_INL_H_
