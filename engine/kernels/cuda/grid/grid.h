#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_

// The language of a kernel's source: CUDA where nvcc compiles it. Elsewhere the same words run on
// the host, block after block, in the emulated grid. A kernel takes one struct of arguments.

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

// Calls f<n>() on the host, where n is one of kNumbers.
template <int... kNumbers, typename F>
void WithConstant(int64_t n, F f) {
  (void)((n == kNumbers && (f.template operator()<kNumbers>(), true)) || ...);
}

__device__ inline float BFloat16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
__device__ inline uint16_t FloatToBFloat16(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(uint16_t bits) { return BFloat16ToFloat(bits); }

// Rounds x to T, which is float or uint16_t (the bits of a bfloat16).
template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return FloatToBFloat16(x);
  }
}

__device__ inline int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarp; }

// These reduce over the 32 lanes, in the same order always; all lanes get the result.
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

// These reduce over the block; all threads get the result. `scratch` [32] is shared. Have barriers.
__device__ inline float BlockSum(float x, float* scratch) {
  x = WarpSum(x);
  __syncthreads();  // scratch may still be read
  if (LaneIndex() == 0) scratch[WarpIndex()] = x;
  __syncthreads();
  x = LaneIndex() < static_cast<int>(blockDim.x) / kWarp ? scratch[LaneIndex()] : 0.0f;
  return WarpSum(x);
}

// The sum of integers is exact in any order; `scratch` has one for each warp.
template <typename T>
__device__ inline T BlockTotal(T x, T* scratch) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  __syncthreads();  // scratch may still be read
  if (LaneIndex() == 0) scratch[WarpIndex()] = x;
  __syncthreads();
  x = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) x += scratch[i];
  return x;
}

__device__ inline float BlockMax(float x, float* scratch) {
  x = WarpMax(x);
  __syncthreads();  // scratch may still be read
  if (LaneIndex() == 0) scratch[WarpIndex()] = x;
  __syncthreads();
  return WarpMax(scratch[LaneIndex() % (static_cast<int>(blockDim.x) / kWarp)]);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_GRID_H_
