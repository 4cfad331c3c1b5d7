// Turns rows of logits into weights, with many blocks of threads per row: a block of threads has 16
// blocks of ids. Each pass reads the logits once; at 64 rows of 128k, 32 MB, the second-level cache
// bounds it.

#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/sampling/blocks.h"

namespace lowkey {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksOfThreads = kThreads / kSumLanes;
constexpr int kIdsPerThread = kSumBlock / kSumLanes;  // ids of a block per thread

// The ids of a thread: kIdsPerThread ids from `first` on, kSumLanes apart; ids from vocab on are
// void.
struct ThreadIds {
  int64_t block, first;
};
__device__ inline ThreadIds IdsOfThread() {
  const int64_t block = int64_t{blockIdx.x} * kBlocksOfThreads + threadIdx.x / kSumLanes;
  return {block, block * kSumBlock + threadIdx.x % kSumLanes};
}

// Stores the largest key of a block of ids; a NaN among them stands out.
__device__ inline void StoreLargest(const SamplingWork& w, const float* logits, int32_t* keys) {
  const ThreadIds ids = IdsOfThread();
  int32_t largest = kNoKey, smallest = kInfinityKey;
  for (int i = 0; i < kIdsPerThread; ++i) {
    const int64_t id = ids.first + i * kSumLanes;
    if (id >= w.a.vocab) continue;
    const int32_t key = NormalKey(logits[id]);
    largest = Larger(largest, key);
    smallest = Smaller(smallest, key);
  }
  if (smallest < kMinusInfinityKey) largest = 0x7fffffff;
  for (int by = kSumLanes / 2; by > 0; by /= 2) {
    largest = Larger(largest, __shfl_xor_sync(0xffffffffu, largest, by));
  }
  if (threadIdx.x % kSumLanes == 0 && ids.block < w.n_blocks) keys[ids.block] = largest;
}

__global__ void RawKeysKernel(SamplingWork w) {
  const int64_t row = blockIdx.y;
  StoreLargest(w, RawLogitsOf(w, row), w.raw_keys + row * w.n_blocks);
  if (!IsAdjusted(w.a.rows[row])) return;
  const ThreadIds ids = IdsOfThread();
  for (int i = 0; i < kIdsPerThread; ++i) {
    const int64_t id = ids.first + i * kSumLanes;
    if (id < w.a.vocab) WeightsOf(w, row)[id] = MaskedLogit(w, row, id);
  }
}

// One thread applies one adjustment.
__global__ void AdjustKernel(SamplingWork w) {
  const SampleRow& row = w.a.rows[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= row.n_adjustments) return;
  const LogitAdjustment adjustment = w.a.adjustments[row.first_adjustment + i];
  WeightsOf(w, blockIdx.y)[adjustment.token] = AdjustedLogit(
      MaskedLogit(w, blockIdx.y, adjustment.token), adjustment, row.repetition_penalty);
}

__global__ void AdjustedKeysKernel(SamplingWork w) {
  const int64_t row = blockIdx.y;
  if (!IsAdjusted(w.a.rows[row])) return;
  StoreLargest(w, WeightsOf(w, row), w.keys + row * w.n_blocks);
}

__global__ void WeightsKernel(SamplingWork w) {
  __shared__ int32_t scratch[kWarp];
  __shared__ double lanes[kThreads];
  const int64_t row = blockIdx.y;
  const SampleRow& r = w.a.rows[row];
  if (r.kind != SampleKind::kDraw) return;
  const float max = FromOrderKey(LargestKey(KeysOf(w, row), w.n_blocks, scratch));
  const float* logits = LogitsOf(w, row);
  const ThreadIds ids = IdsOfThread();
  double sum = 0.0;
  uint64_t fixed_sum = 0;
  int32_t heaviest = 0;
  for (int i = 0; i < kIdsPerThread; ++i) {
    const int64_t id = ids.first + i * kSumLanes;
    if (id >= w.a.vocab) continue;
    const float weight = TokenWeight(logits[id], max, r.temperature);
    WeightsOf(w, row)[id] = weight;
    sum += weight;
    fixed_sum += FixedWeight(weight);
    heaviest = Larger(heaviest, sampling::IntBits(weight));
  }
  sum = LanesTotal(sum, lanes);
  for (int by = kSumLanes / 2; by > 0; by /= 2) {
    fixed_sum += __shfl_xor_sync(0xffffffffu, fixed_sum, by);
    heaviest = Larger(heaviest, __shfl_xor_sync(0xffffffffu, heaviest, by));
  }
  if (threadIdx.x % kSumLanes != 0 || ids.block >= w.n_blocks) return;
  const int64_t at = row * w.n_blocks + ids.block;
  w.sums[at] = sum;
  w.fixed_sums[at] = fixed_sum;
  w.heaviest[at] = heaviest;
}

__global__ void RawSumsKernel(SamplingWork w) {
  __shared__ int32_t scratch[kWarp];
  __shared__ double lanes[kThreads];
  const int64_t row = blockIdx.y;
  if (w.a.rows[row].report != SampleReport::kLogprobs) return;
  const float max = FromOrderKey(LargestKey(w.raw_keys + row * w.n_blocks, w.n_blocks, scratch));
  const float* logits = RawLogitsOf(w, row);
  const ThreadIds ids = IdsOfThread();
  double sum = 0.0;
  for (int i = 0; i < kIdsPerThread; ++i) {
    const int64_t id = ids.first + i * kSumLanes;
    if (id < w.a.vocab) sum += ExpOfNegative(logits[id] - max);
  }
  sum = LanesTotal(sum, lanes);
  if (threadIdx.x % kSumLanes == 0 && ids.block < w.n_blocks) {
    w.raw_sums[row * w.n_blocks + ids.block] = sum;
  }
}

// Returns the drawn token; any token does where none could be drawn.
__device__ inline int32_t TokenOf(const SampleResult& result) {
  return result.outcome == SampleOutcome::kDrawn ? result.token : 0;
}

__global__ void TakeDrawnKernel(TakeDrawnArgs a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  a.tokens[a.drawn[i].row] = TokenOf(a.results[a.drawn[i].result]);
}

// One block of threads works for one sampler.
__global__ void CountDrawnKernel(CountDrawnArgs a) {
  __shared__ int32_t is_found;
  const DrawnCount& count = a.counts[blockIdx.x];
  const int32_t token = TokenOf(a.results[count.result]);
  LogitAdjustment* const own = a.adjustments + count.first_adjustment;
  const int32_t last = count.n_adjustments - 1;
  if (threadIdx.x == 0) is_found = 0;
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < last; i += kThreads) {
    if (own[i].token != token) continue;
    if (count.repeats != 0) own[i].repeats = 1;
    own[i].penalty = a.next_penalties[count.first_adjustment + i];
    own[last] = own[i];
    is_found = 1;
  }
  __syncthreads();
  if (threadIdx.x == 0 && is_found == 0) own[last] = {token, 0.0f, count.repeats, count.penalty};
}

SamplingWork WorkOf(const SamplingArgs& args) {
  SamplingWork w;
  w.a = args;
  w.n_blocks = SumBlocksOf(args.vocab);
  const int64_t n = args.n_rows * w.n_blocks;
  w.sums = reinterpret_cast<double*>(args.scratch);
  w.raw_sums = w.sums + n;
  w.fixed_sums = reinterpret_cast<uint64_t*>(w.raw_sums + n);
  w.raw_keys = reinterpret_cast<int32_t*>(w.fixed_sums + n);
  w.keys = w.raw_keys + n;
  w.heaviest = w.keys + n;
  w.weights = reinterpret_cast<float*>(w.heaviest + n);
  return w;
}

}  // namespace

void SampleOnDevice(Device& device, const SamplingArgs& args) {
  const SamplingWork work = WorkOf(args);
  const LaunchShape of_rows{
      .blocks_x = (work.n_blocks + kBlocksOfThreads - 1) / kBlocksOfThreads,
      .blocks_y = args.n_rows,
      .threads = kThreads,
  };
  Launch(device, RawKeysKernel, of_rows, work);
  if (args.most_adjustments > 0) {
    const int64_t blocks = (args.most_adjustments + kThreads - 1) / kThreads;
    Launch(device, AdjustKernel, {.blocks_x = blocks, .blocks_y = args.n_rows, .threads = kThreads},
           work);
  }
  if (args.most_adjustments > 0 || args.n_masked > 0) {
    Launch(device, AdjustedKeysKernel, of_rows, work);
  }
  if (args.n_draws > 0) Launch(device, WeightsKernel, of_rows, work);
  QueueDraws(device, work);
  if (args.n_reports == 0) return;
  Launch(device, RawSumsKernel, of_rows, work);
  QueueReports(device, work);
}

void TakeDrawnOnDevice(Device& device, const TakeDrawnArgs& args) {
  Launch(device, TakeDrawnKernel,
         {.blocks_x = (args.n + kThreads - 1) / kThreads, .threads = kThreads}, args);
}

void CountDrawnOnDevice(Device& device, const CountDrawnArgs& args) {
  Launch(device, CountDrawnKernel, {.blocks_x = args.n, .threads = kThreads}, args);
}

}  // namespace lowkey
