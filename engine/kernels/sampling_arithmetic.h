#ifndef LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_
#define LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_

// The arithmetic of drawing tokens that the host and devices share, so that both draw the same
// token: both compile it, with the same roundings, one for each operation.
//
// Sums of weights are in double and have one order: blocks of kSumBlock ids in order; in a block
// first the ids of each residue modulo kSumLanes in order, then those kSumLanes sums in order.

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

// Maps floats to signed integers in the same order: compilers vectorize integer minima and maxima,
// but those of floats only with leave to ignore NaN. A NaN lies beyond the infinity of its sign.
LK_HOST_DEVICE inline int32_t OrderKey(float x) {
  const int32_t bits = sampling::IntBits(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
LK_HOST_DEVICE inline float FromOrderKey(int32_t key) {
  return sampling::FloatOf(key ^ ((key >> 31) & 0x7fffffff));
}
inline constexpr int32_t kInfinityKey = 0x7f800000;
inline constexpr int32_t kMinusInfinityKey = -0x7f800001;

// Returns e^x for x <= 0, to 3e-7 of itself, 0 below e^-87 (Cephes' expf): 2^n times a polynomial
// on [-ln 2 / 2, ln 2 / 2]. It has no branches or library calls, so that loops over it are
// vectorized.
LK_HOST_DEVICE inline float ExpOfNegative(float x) {
  using sampling::Times;
  constexpr float kLowest = -87.0f;  // e^-87 is still a normal float
  // Masks replace conditions: the compiler would branch around whatever may trap. NaN is masked
  // too.
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

// Returns a token's weight in a draw: 1 for the largest logit. temperature > 0.
LK_HOST_DEVICE inline float TokenWeight(float logit, float max, float temperature) {
  return ExpOfNegative(sampling::Over(logit - max, temperature));
}

// Returns a weight in units of 2^-43, rounded. Sums of these over a vocabulary (2^20 at most) are
// exact, so that their order does not matter: they define the nucleus.
LK_HOST_DEVICE inline uint64_t FixedWeight(float weight) {
  constexpr double kTwo52 = 0x1p52;  // its unit in the last place is 1
  return sampling::Bits(sampling::Times(static_cast<double>(weight), 0x1p43) + kTwo52) -
         sampling::Bits(kTwo52);
}
// Returns the sum of fixed weights that the nucleus of top_p has to reach.
LK_HOST_DEVICE inline uint64_t NeededOf(float top_p, uint64_t total) {
  return static_cast<uint64_t>(
      ceil(sampling::Times(static_cast<double>(top_p), static_cast<double>(total))));
}
// Returns a weight below which no token is in the nucleus of top_p over n weights whose sum is
// `sum`: all such tokens have less than a quarter of 1 - top_p together, and rounding at most
// doubles that.
LK_HOST_DEVICE inline float BelowNucleus(float top_p, double sum, int64_t n) {
  return static_cast<float>(0.25 * (1.0 - static_cast<double>(top_p)) / static_cast<double>(n) *
                            sum);
}

// A request's changes to one token's logit.
struct LogitAdjustment {
  int32_t token = 0;
  float bias = 0.0f;     // added first
  int32_t repeats = 0;   // 1: the repetition penalty applies
  float penalty = 0.0f;  // presence and frequency together; subtracted last
};

LK_HOST_DEVICE inline float AdjustedLogit(float logit, const LogitAdjustment& adjustment,
                                          float repetition_penalty) {
  constexpr float kLargest = 3.402823466e+38f;
  float x = logit + adjustment.bias;
  if (adjustment.repeats != 0) {
    x = x > 0.0f ? sampling::Over(x, repetition_penalty) : sampling::Times(x, repetition_penalty);
  }
  x = x - adjustment.penalty;
  // The request, not the model, may have pushed a logit over the largest float: the token is still
  // the most likely one.
  return x < kLargest ? x : kLargest;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_SAMPLING_ARITHMETIC_H_
