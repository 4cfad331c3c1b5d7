#ifndef LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_
#define LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_

// The arithmetic of drawing tokens that the host and devices share, so that both draw the same
// token: compiled by both, with the same roundings, one for each operation.
//
// Sums of weights are in double and have one order: blocks of kSumBlock ids, in order; in a block
// kSumLanes lanes, id modulo kSumLanes, each in order of id, then the lanes in order.

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define LK_HOST_DEVICE __host__ __device__
#else
#include <bit>
#define LK_HOST_DEVICE
#endif

namespace lowkey {

inline constexpr int32_t kSumBlock = 256;
inline constexpr int32_t kSumLanes = 8;

namespace sampling {

#ifdef __CUDA_ARCH__
__device__ inline int32_t IntBits(float x) { return __float_as_int(x); }
__device__ inline float FloatOf(int32_t bits) { return __int_as_float(bits); }
__device__ inline uint64_t Bits(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
// Never fused with an addition.
__device__ inline float Times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double Times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float Over(float a, float b) { return __fdiv_rn(a, b); }
#else
LK_HOST_DEVICE inline int32_t IntBits(float x) { return __builtin_bit_cast(int32_t, x); }
LK_HOST_DEVICE inline float FloatOf(int32_t bits) { return __builtin_bit_cast(float, bits); }
LK_HOST_DEVICE inline uint64_t Bits(double x) { return __builtin_bit_cast(uint64_t, x); }
LK_HOST_DEVICE inline float Times(float a, float b) { return a * b; }
LK_HOST_DEVICE inline double Times(double a, double b) { return a * b; }
LK_HOST_DEVICE inline float Over(float a, float b) { return a / b; }
#endif

}  // namespace sampling

// Signed integers in the order of the floats with these bits: integer minima and maxima are
// vectorized, those of floats are not without leave to ignore NaN. A NaN lies beyond the infinity
// of its sign.
LK_HOST_DEVICE inline int32_t OrderKey(float x) {
  const int32_t bits = sampling::IntBits(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
LK_HOST_DEVICE inline float FromOrderKey(int32_t key) {
  return sampling::FloatOf(key ^ ((key >> 31) & 0x7fffffff));
}
inline constexpr int32_t kInfinityKey = 0x7f800000;
inline constexpr int32_t kMinusInfinityKey = -0x7f800001;

// e^x for x <= 0, to 3e-7 of itself, 0 below e^-87 (Cephes' expf): 2^n times a polynomial on
// [-ln 2 / 2, ln 2 / 2]. Without branches or library calls, so that loops over it are vectorized.
LK_HOST_DEVICE inline float ExpOfNegative(float x) {
  using sampling::Times;
  constexpr float kLowest = -87.0f;  // e^-87 is still a normal float
  // Masks, not conditions: the compiler would branch around whatever may trap. NaN too is masked.
  const int32_t mask = -static_cast<int32_t>(x > kLowest);
  const float c =
      sampling::FloatOf((sampling::IntBits(x) & mask) | (sampling::IntBits(kLowest) & ~mask));
  const int32_t n = static_cast<int32_t>(Times(c, 1.44269504f) - 0.5f);
  const float whole = static_cast<float>(n);
  const float r = c - Times(whole, 0.693359375f) - Times(whole, -2.12194440e-4f);
  float p = 1.9875691500e-4f;
  p = Times(p, r) + 1.3981999507e-3f;
  p = Times(p, r) + 8.3334519073e-3f;
  p = Times(p, r) + 4.1665795894e-2f;
  p = Times(p, r) + 1.6666665459e-1f;
  p = Times(p, r) + 5.0000001201e-1f;
  p = Times(Times(p, r), r) + r + 1.0f;
  const float power = sampling::FloatOf((n + 127) << 23);
  return sampling::FloatOf(sampling::IntBits(Times(p, power)) & mask);
}

// A token's weight in a draw: 1 for the largest logit. temperature > 0.
LK_HOST_DEVICE inline float TokenWeight(float logit, float max, float temperature) {
  return ExpOfNegative(sampling::Over(logit - max, temperature));
}

// A weight in units of 2^-43, rounded. Sums of these over a vocabulary (2^20 at most) are exact, so
// that their order does not matter: the nucleus is defined by them.
LK_HOST_DEVICE inline uint64_t FixedWeight(float weight) {
  constexpr double kTwo52 = 0x1p52;  // its unit in the last place is 1
  return sampling::Bits(sampling::Times(static_cast<double>(weight), 0x1p43) + kTwo52) -
         sampling::Bits(kTwo52);
}
// What the nucleus of top_p has to reach of a sum of fixed weights.
LK_HOST_DEVICE inline uint64_t NeededOf(float top_p, uint64_t total) {
  return static_cast<uint64_t>(
      ceil(sampling::Times(static_cast<double>(top_p), static_cast<double>(total))));
}
// A weight below which no token is in the nucleus of top_p over n weights whose sum is `sum`: all
// such tokens have less than a quarter of 1 - top_p together, and rounding doubles that at most.
LK_HOST_DEVICE inline float BelowNucleus(float top_p, double sum, int64_t n) {
  return static_cast<float>(0.25 * (1.0 - static_cast<double>(top_p)) / static_cast<double>(n) *
                            sum);
}

// What a request changes of one token's logit.
struct LogitAdjustment {
  int32_t token = 0;
  float bias = 0.0f;     // added first
  int32_t repeats = 0;   // 1: the repetition penalty applies
  float penalty = 0.0f;  // of presence and frequency; subtracted last
};

LK_HOST_DEVICE inline float AdjustedLogit(float logit, const LogitAdjustment& adjustment,
                                          float repetition_penalty) {
  constexpr float kLargest = 3.402823466e+38f;
  float x = logit + adjustment.bias;
  if (adjustment.repeats != 0) {
    x = x > 0.0f ? sampling::Over(x, repetition_penalty) : sampling::Times(x, repetition_penalty);
  }
  x = x - adjustment.penalty;
  // A logit near the largest float may have been pushed over it: that is the request's doing, not
  // the model's, and still the most likely token.
  return x < kLargest ? x : kLargest;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_
