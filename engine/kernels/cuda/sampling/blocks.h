#ifndef LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_

// Code that the kernels of sampling share.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/device/sampling.h"

namespace lowkey {

// The data that the steps of a call share: for each row n_blocks numbers, one per block of
// kSumBlock ids, and a weight per id.
struct SamplingWork {
  SamplingArgs a;
  int64_t n_blocks = 0;
  double* sums = nullptr;          // sums of weights
  double* raw_sums = nullptr;      // sums of exp(logit - max) of the raw logits
  uint64_t* fixed_sums = nullptr;  // sums of FixedWeight, for top_p
  int32_t* raw_keys = nullptr;     // the largest NormalKey of the raw logits; NaN stands out
  int32_t* keys = nullptr;         // the same for rows with adjusted logits (IsAdjusted)
  int32_t* heaviest = nullptr;     // the bits of the largest weight
  float* weights = nullptr;        // the adjusted logits at first
};

// Queues the draw of each row's token from keys and weights (draw.cu).
void QueueDraws(Device& device, const SamplingWork& work);
// Queues the reports of rows (report.cu).
void QueueReports(Device& device, const SamplingWork& work);

inline constexpr int32_t kNoKey = -0x7fffffff - 1;  // below the key of every float

// Returns OrderKey with -0 equal to 0.
__device__ inline int32_t NormalKey(float x) { return OrderKey(x + 0.0f); }

__device__ inline bool IsBadKey(int32_t largest) {
  return largest >= kInfinityKey || largest == kMinusInfinityKey;
}

template <typename T>
__device__ inline T Larger(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
__device__ inline T Smaller(T a, T b) {
  return a < b ? a : b;
}

// Returns the largest x of the block in all threads; `scratch` [32] is shared. Has barriers.
__device__ inline int32_t BlockLargest(int32_t x, int32_t* scratch) {
  x = __reduce_max_sync(0xffffffffu, x);
  __syncthreads();  // scratch may still be read
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) x = Larger(x, scratch[i]);
  return x;
}
__device__ inline int32_t BlockSmallest(int32_t x, int32_t* scratch) {
  return ~BlockLargest(~x, scratch);
}

// Returns the largest of n keys in all threads of the block.
__device__ inline int32_t LargestKey(const int32_t* keys, int64_t n, int32_t* scratch) {
  int32_t largest = kNoKey;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = Larger(largest, keys[i]);
  return BlockLargest(largest, scratch);
}

// Returns to the first of kSumLanes neighboring threads the sum of their x, in order. `lanes`
// [blockDim.x] is shared.
__device__ inline double LanesTotal(double x, double* lanes) {
  __syncwarp();  // lanes may still be read
  lanes[threadIdx.x] = x;
  __syncwarp();
  double total = 0.0;
  if (threadIdx.x % kSumLanes == 0) {
    for (int i = 0; i < kSumLanes; ++i) total += lanes[threadIdx.x + i];
  }
  return total;
}

// Returns whether a row draws from other logits than the raw ones.
__device__ inline bool IsAdjusted(const SampleRow& row) {
  return row.n_adjustments > 0 || row.first_mask_word >= 0;
}
// Returns the keys of the logits that a row draws from.
__device__ inline const int32_t* KeysOf(const SamplingWork& w, int64_t row) {
  return (IsAdjusted(w.a.rows[row]) ? w.keys : w.raw_keys) + row * w.n_blocks;
}
__device__ inline const float* RawLogitsOf(const SamplingWork& w, int64_t row) {
  return w.a.logits + w.a.rows[row].logits_row * w.a.ld_logits;
}
// Returns a token's logit, or -inf where the row's mask keeps the token out.
__device__ inline float MaskedLogit(const SamplingWork& w, int64_t row, int64_t token) {
  const int64_t first = w.a.rows[row].first_mask_word;
  const bool may_come = first < 0 || (w.a.mask_words[first + token / 64] >> (token % 64) & 1) != 0;
  return may_come ? RawLogitsOf(w, row)[token] : FromOrderKey(kMinusInfinityKey);
}
// Returns a row's weights, whose place holds the adjusted logits before.
__device__ inline float* WeightsOf(const SamplingWork& w, int64_t row) {
  return w.weights + row * w.n_blocks * kSumBlock;
}

// Returns the logits that a row draws from, until weights take their place.
__device__ inline const float* LogitsOf(const SamplingWork& w, int64_t row) {
  return IsAdjusted(w.a.rows[row]) ? WeightsOf(w, row) : RawLogitsOf(w, row);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_BLOCKS_H_
