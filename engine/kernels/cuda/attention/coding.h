#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CODING_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CODING_H_

#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {

// Returns the least bf16 that is not below x >= 0.
__device__ inline uint16_t RoundUpToBFloat16(float x) {
  const uint32_t bits = __float_as_uint(x);
  return static_cast<uint16_t>((bits >> 16) + ((bits & 0xffffu) != 0 ? 1 : 0));
}

// The coding of numbers in [low, high]. Products and sums are rounded one by one, so that the codes
// equal the host's (quantized_kv.cc).
struct Coding {
  float scale, middle, lowest, highest;
  uint32_t numbers;

  __device__ inline Coding(float low, float high, int bits)
      : lowest(bits == 4 ? -8.0f : -128.0f), highest(-lowest - 1) {
    const float share = highest / (highest - lowest);
    const uint16_t rounded =
        FloatToBFloat16(__fadd_rn(__fmul_rn(share, low), __fmul_rn(1 - share, high)));
    middle = BFloat16ToFloat(rounded);
    const uint16_t up =
        RoundUpToBFloat16(fmaxf((high - middle) / highest, (low - middle) / lowest));
    scale = BFloat16ToFloat(up);
    numbers = static_cast<uint32_t>(rounded) << 16 | up;
  }

  // Returns the code of x in its stored form.
  __device__ inline uint8_t Code(float x) const {
    float units = rintf((x - middle) / scale);
    if (units != units) units = 0;  // 0 / 0, or x is NaN
    return static_cast<uint8_t>(fminf(fmaxf(units, lowest), highest) - lowest);
  }
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CODING_H_
