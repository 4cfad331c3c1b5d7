// Reports the parts of log-probabilities; one block of threads works on one row. The largest logits
// are found one after another: the block of ids with the largest key, its first such id, and the
// block's next largest key. Twenty take some 15 us, whatever the vocabulary.

#include "engine/kernels/cuda/sampling/blocks.h"

namespace lowkey {
namespace {

constexpr int kThreads = kSumBlock;  // one thread per id of a block

// The last token that was reported, in the order of tokens.
struct Reported {
  int32_t key = 0x7fffffff;
  int64_t id = -1;

  __device__ bool ComesBefore(int32_t other_key, int64_t other_id) const {
    return other_key < key || (other_key == key && other_id > id);
  }
};

// Returns the sum in order to every thread.
__device__ double SumInOrder(const double* sums, int64_t n, double* staged) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) staged[i] = sums[i];
  __syncthreads();
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += staged[i];
  __syncthreads();
  return sum;
}

struct LargestBlock {
  int32_t key, block;
};
// Returns the first block of ids with the largest key.
__device__ LargestBlock FindLargest(const int32_t* keys, int32_t n_blocks, int32_t* scratch) {
  const int32_t key = LargestKey(keys, n_blocks, scratch);
  int32_t block = n_blocks;
  for (int32_t b = threadIdx.x; b < n_blocks; b += kThreads) {
    if (keys[b] == key) block = Smaller(block, b);
  }
  return {key, BlockSmallest(block, scratch)};
}

__device__ void ReportTop(const SamplingWork& w, int64_t row, int32_t* keys) {
  __shared__ int32_t scratch[kWarp];
  const float* logits = RawLogitsOf(w, row);
  for (int64_t b = threadIdx.x; b < w.n_blocks; b += blockDim.x) {
    keys[b] = w.raw_keys[row * w.n_blocks + b];
  }
  __syncthreads();
  Reported last;
  const int32_t n_top = w.a.rows[row].n_top;
  for (int32_t i = 0; i < n_top && i < w.a.vocab; ++i) {
    const LargestBlock best = FindLargest(keys, static_cast<int32_t>(w.n_blocks), scratch);
    const int64_t id = int64_t{best.block} * kSumBlock + threadIdx.x;
    const int32_t key = id < w.a.vocab ? NormalKey(logits[id]) : kNoKey;
    const bool is_left = id < w.a.vocab && last.ComesBefore(key, id);
    constexpr int32_t kNoId = 0x7fffffff;
    const int32_t mine = is_left && key == best.key ? static_cast<int32_t>(id) : kNoId;
    const int32_t token = BlockSmallest(mine, scratch);
    const int32_t largest_left = BlockLargest(is_left && id != token ? key : kNoKey, scratch);
    if (id == token) w.a.results[row].top[i] = {logits[token], token};
    if (threadIdx.x == 0) keys[best.block] = largest_left;
    last = {best.key, token};
    __syncthreads();
  }
}

__global__ void ReportKernel(SamplingWork w) {
  LK_DYNAMIC_SHARED(double, staged);  // [n_blocks]
  __shared__ int32_t scratch[kWarp];
  const int64_t row = blockIdx.x;
  SampleResult& result = w.a.results[row];
  if (w.a.rows[row].report != SampleReport::kLogprobs) return;
  if (result.outcome != SampleOutcome::kDrawn) return;
  const int32_t* keys = w.raw_keys + row * w.n_blocks;
  const float max = FromOrderKey(LargestKey(keys, w.n_blocks, scratch));
  const double sum = SumInOrder(w.raw_sums + row * w.n_blocks, w.n_blocks, staged);
  if (threadIdx.x == 0) {
    result.logit = RawLogitsOf(w, row)[result.token];
    result.max = max;
    result.exp_sum = sum;
  }
  ReportTop(w, row, reinterpret_cast<int32_t*>(staged));
}

}  // namespace

void QueueReports(Device& device, const SamplingWork& work) {
  const int64_t shared_bytes = work.n_blocks * static_cast<int64_t>(sizeof(double));
  Launch(device, ReportKernel,
         {.blocks_x = work.a.n_rows, .threads = kThreads, .shared_bytes = shared_bytes}, work);
}

}  // namespace lowkey
