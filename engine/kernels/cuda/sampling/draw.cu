// Draws one token per row; one block of threads works on one row. Filters keep the first tokens in
// their order (most likely first, among equals by id). A radix search over the weights' bits, ten
// at a time, finds where these end, without sorting. Blocks of ids whose heaviest token is too
// light are not read. Histograms add integers, which is exact in any order; weights are summed in
// the order of sampling_arithmetic.h.

#include "engine/kernels/cuda/sampling/blocks.h"

namespace lowkey {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBinBits = 10;
constexpr int kBins = 1 << kBinBits;  // one for each thread
static_assert(kBins == kThreads);
// The bits of a weight lie in [0, 2^30), because weights are at most 1.
constexpr int kKeyBits = 30;

// Sums of 64 bits in halves: atomic additions of 64 bits are slow.
struct Bins {
  uint32_t low[kBins], high[kBins];
};

struct DrawScratchpad {
  // The histogram of a search, or the numbers that SumBlocks adds.
  union {
    Bins bins;
    double lanes[kThreads];
  };
  uint64_t words[kWarp];
  int32_t ints[kWarp];
  float window[kSumBlock];
  // Results of one thread for all threads.
  uint64_t before, in_bin;
  int32_t bin, is_found;
  int64_t block;
  double sum, target;
  int32_t token;
};

constexpr int64_t kMostSumBlocks = (int64_t{1} << 20) / kSumBlock;
static_assert(sizeof(DrawScratchpad) + kMostSumBlocks * sizeof(double) <= 48 << 10);

struct DrawRow {
  const float* weights;
  int64_t n, n_blocks;
  const double* sums;  // [n_blocks], like the next two
  const uint64_t* fixed_sums;
  const int32_t* heaviest;
};

// A cut keeps tokens whose weight's bits are above `key`, and of the n_equal tokens whose bits
// equal `key` the first n_kept by id.
struct Cut {
  int32_t key = 1;  // every token that can be drawn
  uint64_t n_kept = 0, n_equal = 0;
};

__device__ void ClearBins(DrawScratchpad& s) {
  __syncthreads();
  s.bins.low[threadIdx.x] = s.bins.high[threadIdx.x] = 0;
  __syncthreads();
}

__device__ void AddToBin(DrawScratchpad& s, int32_t bin, uint64_t x) {
  const auto low = static_cast<uint32_t>(x);
  const uint32_t old = atomicAdd(&s.bins.low[bin], low);
  const uint32_t high = static_cast<uint32_t>(x >> 32) + (old + low < old ? 1 : 0);
  if (high != 0) atomicAdd(&s.bins.high[bin], high);
}

// Returns the first lane at which the running sum of x over the lanes reaches needed > 0; the
// default where no lane does.
struct LaneAt {
  int lane = kWarp;
  uint64_t before = 0, in_lane = 0;
};
__device__ LaneAt LaneReaching(uint64_t x, uint64_t needed) {
  const int lane = threadIdx.x % kWarp;
  uint64_t sum = x;
  for (int by = 1; by < kWarp; by *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, sum, by);
    if (lane >= by) sum += other;
  }
  const unsigned reaching = __ballot_sync(0xffffffffu, sum >= needed);
  if (reaching == 0) return {};
  const int first = __ffs(static_cast<int>(reaching)) - 1;
  return {first, __shfl_sync(0xffffffffu, sum - x, first), __shfl_sync(0xffffffffu, x, first)};
}

// Finds the bin, from the last one down, in which the running sum reaches needed > 0, and sets bin,
// before and in_bin of `s`. Returns false where no bin does.
__device__ bool FindBin(DrawScratchpad& s, uint64_t needed) {
  static_assert(kBins == kWarp * kWarp);
  const int lane = threadIdx.x;
  const auto from_last = [&s](int i) {
    const int32_t bin = kBins - 1 - i;
    return uint64_t{s.bins.high[bin]} << 32 | s.bins.low[bin];
  };
  __syncthreads();
  if (threadIdx.x < kWarp) {
    uint64_t sum = 0;  // sum of 32 bins, in turned order, so that lanes read different banks
    for (int i = 0; i < kWarp; ++i) sum += from_last(lane * kWarp + (i + lane) % kWarp);
    const LaneAt bins = LaneReaching(sum, needed);
    if (bins.lane < kWarp) {
      const int first = bins.lane * kWarp;
      const LaneAt bin = LaneReaching(from_last(first + lane), needed - bins.before);
      s.bin = kBins - 1 - (first + bin.lane);
      s.before = bins.before + bin.before;
      s.in_bin = bin.in_lane;
    }
    s.is_found = bins.lane < kWarp ? 1 : 0;
  }
  __syncthreads();
  return s.is_found != 0;
}

// Calls take(key) for the bits of every weight that are at least `lowest` > 0.
template <typename Take>
__device__ void ForEachKey(const DrawRow& row, int32_t lowest, Take take) {
  constexpr int kIdsPerThread = kSumBlock / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t b = threadIdx.x / kWarp; b < row.n_blocks; b += kWarps) {
    if (row.heaviest[b] < lowest) continue;
    int32_t keys[kIdsPerThread];
    for (int i = 0; i < kIdsPerThread; ++i) {
      const int64_t id = b * kSumBlock + i * kWarp + lane;
      keys[i] = id < row.n ? sampling::IntBits(row.weights[id]) : 0;
    }
    for (int i = 0; i < kIdsPerThread; ++i) {
      if (keys[i] >= lowest) take(keys[i]);
    }
  }
}

// Returns the cut of the fewest first tokens whose measure(key) sum to `needed`, among tokens with
// keys of at least `lowest` > 0; all of these where they do not suffice.
template <typename Measure>
__device__ Cut Reaching(const DrawRow& row, uint64_t needed, int32_t lowest, Measure measure,
                        DrawScratchpad& s) {
  int32_t prefix = 0;
  uint64_t before = 0;
  for (int shift = kKeyBits - kBinBits; shift >= 0; shift -= kBinBits) {
    ClearBins(s);
    const int above = shift + kBinBits;
    ForEachKey(row, Larger(lowest, prefix), [&](int32_t key) {
      if (key >> above == prefix >> above) AddToBin(s, key >> shift & (kBins - 1), measure(key));
    });
    if (!FindBin(s, needed - before)) return {lowest};
    before += s.before;
    prefix |= s.bin << shift;
  }
  const uint64_t each = measure(prefix);
  return {prefix, (needed - before + each - 1) / each, s.in_bin / each};
}

struct One {
  __device__ uint64_t operator()(int32_t) const { return 1; }
};
struct Fixed {
  __device__ uint64_t operator()(int32_t key) const { return FixedWeight(sampling::FloatOf(key)); }
};

__device__ Cut TopK(const DrawRow& row, int32_t k, DrawScratchpad& s) {
  int32_t lowest = 1;
  if (k <= row.n_blocks) {
    // At least k blocks have a token in this bin or above.
    ClearBins(s);
    for (int64_t b = threadIdx.x; b < row.n_blocks; b += kThreads) {
      AddToBin(s, row.heaviest[b] >> (kKeyBits - kBinBits), 1);
    }
    if (FindBin(s, k)) lowest = Larger(lowest, s.bin << (kKeyBits - kBinBits));
  }
  return Reaching(row, k, lowest, One(), s);
}

// Returns the sum of fixed weights of the tokens that a cut keeps.
__device__ uint64_t FixedSumOf(const DrawRow& row, const Cut& cut, DrawScratchpad& s) {
  uint64_t sum = 0;
  ForEachKey(row, cut.key, [&](int32_t key) { sum += Fixed()(key); });
  sum = BlockTotal(sum, s.words);
  return sum - (cut.n_equal - cut.n_kept) * Fixed()(cut.key);
}

__device__ Cut TopP(const DrawRow& row, float p, DrawScratchpad& s) {
  uint64_t total = 0;
  for (int64_t b = threadIdx.x; b < row.n_blocks; b += kThreads) total += row.fixed_sums[b];
  total = BlockTotal(total, s.words);
  const float smallest = BelowNucleus(p, static_cast<double>(total) * 0x1p-43, row.n);
  return Reaching(row, NeededOf(p, total), Larger(1, sampling::IntBits(smallest)), Fixed(), s);
}

__device__ Cut Filtered(const DrawRow& row, const SampleRow& r, DrawScratchpad& s) {
  Cut cut;
  if (r.top_k > 0 && r.top_k < row.n) {
    cut = TopK(row, r.top_k, s);
    if (r.top_p < 1.0f) {
      const uint64_t needed = NeededOf(r.top_p, FixedSumOf(row, cut, s));
      cut = Reaching(row, needed, cut.key, Fixed(), s);
    }
  } else if (r.top_p < 1.0f) {
    cut = TopP(row, r.top_p, s);
  }
  if (r.min_p > 0.0f && sampling::IntBits(r.min_p) > cut.key) cut = {sampling::IntBits(r.min_p)};
  return cut;
}

// Sums weight(id) by blocks of ids; blocks whose heaviest has less than `lowest` give 0.
template <typename Weight>
__device__ void SumBlocks(const DrawRow& row, int32_t lowest, Weight weight, double* sums,
                          DrawScratchpad& s) {
  constexpr int kAtOnce = kThreads / kSumLanes;
  const int lane = threadIdx.x % kSumLanes;
  for (int64_t first = 0; first < row.n_blocks; first += kAtOnce) {
    const int64_t b = first + threadIdx.x / kSumLanes;
    double sum = 0.0;
    if (b < row.n_blocks && row.heaviest[b] >= lowest) {
      for (int i = 0; i < kSumBlock / kSumLanes; ++i) {
        const int64_t id = b * kSumBlock + i * kSumLanes + lane;
        if (id < row.n) sum += weight(id);
      }
    }
    sum = LanesTotal(sum, s.lanes);
    if (lane == 0 && b < row.n_blocks) sums[b] = sum;
  }
}

// Finds the block of ids that the target, target(sum of all), lies in: sets block and target of
// `s`, and sum, that of earlier blocks. Past the end it is the last block with any weight. Turns
// `sums` into running sums.
template <typename Target>
__device__ void FindBlock(double* sums, int64_t n_blocks, Target target, DrawScratchpad& s) {
  double sum = 0.0;
  int64_t last = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (sums[b] != 0.0) last = b;
    sum += sums[b];
    sums[b] = sum;
  }
  s.target = target(sum);
  int64_t below = 0, above = last;  // the first block whose running sum exceeds the target
  while (below < above) {
    const int64_t middle = (below + above) / 2;
    if (sums[middle] > s.target) {
      above = middle;
    } else {
      below = middle + 1;
    }
  }
  s.block = below;
  s.sum = below == 0 ? 0.0 : sums[below - 1];
}

// Returns to every thread the id at which the running sum of weight(id) exceeds the target; `sums`
// is as SumBlocks leaves it.
template <typename Weight, typename Target>
__device__ int32_t IdAt(const DrawRow& row, double* sums, Weight weight, Target target,
                        DrawScratchpad& s) {
  __syncthreads();
  if (threadIdx.x == 0) FindBlock(sums, row.n_blocks, target, s);
  __syncthreads();
  const int64_t first = s.block * kSumBlock;
  const int64_t id = first + threadIdx.x;
  if (threadIdx.x < kSumBlock) s.window[threadIdx.x] = id < row.n ? weight(id) : 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = s.sum;
    for (int i = 0; i < kSumBlock && sum <= s.target; ++i) {
      if (s.window[i] == 0.0f) continue;
      s.token = static_cast<int32_t>(first + i);
      sum += s.window[i];
    }
  }
  __syncthreads();
  return s.token;
}

__device__ int32_t Draw(const DrawRow& row, const SampleRow& r, double* sums, DrawScratchpad& s) {
  const auto at_uniform = [&r](double sum) { return r.uniform * sum; };
  const auto weight = [&row](int64_t id) { return row.weights[id]; };
  const Cut cut = Filtered(row, r, s);
  if (cut.key == 1) {
    for (int64_t b = threadIdx.x; b < row.n_blocks; b += kThreads) sums[b] = row.sums[b];
    return IdAt(row, sums, weight, at_uniform, s);
  }
  int64_t last_equal = row.n;
  if (cut.n_kept < cut.n_equal) {
    const auto is_equal = [&](int64_t id) {
      return sampling::IntBits(row.weights[id]) == cut.key ? 1.0f : 0.0f;
    };
    SumBlocks(row, cut.key, is_equal, sums, s);
    const auto n_before = static_cast<double>(cut.n_kept - 1);
    last_equal = IdAt(
        row, sums, is_equal, [=](double) { return n_before; }, s);
  }
  const auto kept = [&](int64_t id) {
    const int32_t key = sampling::IntBits(row.weights[id]);
    return key > cut.key || (key == cut.key && id <= last_equal) ? row.weights[id] : 0.0f;
  };
  SumBlocks(row, cut.key, kept, sums, s);
  return IdAt(row, sums, kept, at_uniform, s);
}

// Returns the lowest id with this key.
__device__ int32_t FirstIdOf(const SamplingWork& w, int64_t row, int32_t key, int32_t* scratch) {
  const int32_t* keys = KeysOf(w, row);
  const auto n_blocks = static_cast<int32_t>(w.n_blocks);
  int32_t block = n_blocks;
  for (int32_t b = threadIdx.x; b < n_blocks; b += kThreads) {
    if (keys[b] == key) block = Smaller(block, b);
  }
  block = BlockSmallest(block, scratch);
  const float* logits = LogitsOf(w, row);
  const auto vocab = static_cast<int32_t>(w.a.vocab);
  const int32_t id = block * kSumBlock + static_cast<int32_t>(threadIdx.x);
  const bool is_it = threadIdx.x < kSumBlock && id < vocab && NormalKey(logits[id]) == key;
  return BlockSmallest(is_it ? id : vocab, scratch);
}

__global__ void __launch_bounds__(kThreads) DrawKernel(SamplingWork w) {
  LK_DYNAMIC_SHARED(double, sums);  // [n_blocks]
  __shared__ DrawScratchpad s;
  const int64_t row = blockIdx.x;
  const SampleRow& r = w.a.rows[row];
  SampleResult& result = w.a.results[row];
  int32_t largest = LargestKey(w.raw_keys + row * w.n_blocks, w.n_blocks, s.ints);
  if (IsBadKey(largest)) {
    if (threadIdx.x == 0) result.outcome = SampleOutcome::kBadLogits;
    return;
  }
  if (IsAdjusted(r)) largest = LargestKey(KeysOf(w, row), w.n_blocks, s.ints);
  if (IsBadKey(largest)) {
    if (threadIdx.x == 0) result.outcome = SampleOutcome::kNothingLeft;
    return;
  }
  int32_t token = r.token;
  if (r.kind == SampleKind::kMostLikely) token = FirstIdOf(w, row, largest, s.ints);
  if (r.kind == SampleKind::kDraw) {
    const int64_t at = row * w.n_blocks;
    const DrawRow weights{WeightsOf(w, row), w.a.vocab,         w.n_blocks,
                          w.sums + at,       w.fixed_sums + at, w.heaviest + at};
    token = Draw(weights, r, sums, s);
  }
  if (threadIdx.x == 0) {
    result.outcome = SampleOutcome::kDrawn;
    result.token = token;
  }
}

}  // namespace

void QueueDraws(Device& device, const SamplingWork& work) {
  const int64_t shared_bytes = work.n_blocks * static_cast<int64_t>(sizeof(double));
  Launch(device, DrawKernel,
         {.blocks_x = work.a.n_rows, .threads = kThreads, .shared_bytes = shared_bytes}, work);
}

}  // namespace lowkey
