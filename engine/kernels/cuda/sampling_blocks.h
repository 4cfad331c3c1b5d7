#ifndef LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_

// What the kernels of sampling share.

#include "engine/kernels/cuda/grid.h"
#include "engine/kernels/cuda/sampling.h"

namespace lowkey {

inline constexpr int32_t kNoKey = -0x7fffffff - 1;  // below every float's

// OrderKey, with which -0 equals 0.
__device__ inline int32_t NormalKey(float x) { return OrderKey(x + 0.0f); }

__device__ inline bool IsBadKey(int32_t largest) {
  return largest >= kInfinityKey || largest == kMinusInfinityKey;
}

struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Smaller {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Over the block, the same in all of its threads; `empty` combined with x is x. For what is exact
// in any order. `scratch` [32] is shared. Barriers inside.
template <typename T, typename Combine>
__device__ inline T OverBlock(T x, T empty, Combine combine, T* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int by = kWarp / 2; by > 0; by /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, by));
  __syncthreads();  // of an earlier use of scratch
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : empty;
  for (int by = kWarp / 2; by > 0; by /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, by));
  return x;
}

// The largest of n keys, the same in all threads of the block.
__device__ inline int32_t LargestKey(const int32_t* keys, int64_t n, int32_t* scratch) {
  int32_t largest = kNoKey;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = Larger()(largest, keys[i]);
  return OverBlock(largest, kNoKey, Larger(), scratch);
}

// The sum over kSumLanes neighbouring threads, in their order, the same in all of them.
__device__ inline double LanesTotal(double x) {
  const int first = static_cast<int>(threadIdx.x) % kWarp / kSumLanes * kSumLanes;
  double total = 0.0;
  for (int i = 0; i < kSumLanes; ++i) total += __shfl_sync(0xffffffffu, x, first + i);
  return total;
}

// The keys of a row's logits after its adjustments.
__device__ inline const int32_t* KeysOf(const SamplingWork& w, int64_t row) {
  return (w.a.rows[row].n_adjustments > 0 ? w.keys : w.raw_keys) + row * w.n_blocks;
}
__device__ inline const float* RawLogitsOf(const SamplingWork& w, int64_t row) {
  return w.a.logits + w.a.rows[row].logits_row * w.a.ld_logits;
}
// Where a row's weights are, and before that its adjusted logits.
__device__ inline float* WeightsOf(const SamplingWork& w, int64_t row) {
  return w.weights + row * w.n_blocks * kSumBlock;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_
