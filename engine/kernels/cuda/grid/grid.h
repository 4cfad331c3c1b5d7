#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_

// What a kernel's source is written in: CUDA where nvcc compiles it; elsewhere the same words, run
// by the emulated grid, block after block, on the host. A kernel takes one struct of arguments.

#include <cstdint>

#include "engine/kernels/device/device.h"

#ifdef __CUDACC__
#include "engine/kernels/cuda/grid/native_grid.h"
#else
#include "engine/kernels/cuda/emulated/grid.h"
#endif

namespace lowkey {

// Queues a kernel. Nothing happens when a count of blocks is 0.
//   template <typename Args>
//   void Launch(Device&, void (*kernel)(Args), const LaunchShape&, const Args&);

__device__ inline float BFloat16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
__device__ inline uint16_t FloatToBFloat16(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(uint16_t bits) { return BFloat16ToFloat(bits); }

// T is float or uint16_t, a bfloat16's bits.
template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return FloatToBFloat16(x);
  }
}

// Over the 32 lanes, the same in all of them, always in the same order.
__device__ inline float WarpSum(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

__device__ inline float WarpMax(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  }
  return x;
}

// Over the block, the same in all of its threads; `scratch` [32] is shared. Barriers inside.
__device__ inline float BlockSum(float x, float* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = WarpSum(x);
  __syncthreads();  // of an earlier use of scratch
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : 0.0f;
  return WarpSum(x);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_
