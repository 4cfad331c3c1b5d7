// Chooses the far tokens that a row reads exactly: the heaviest, by counting (no sort, no atomics).

#include "engine/kernels/cuda/atp/reader.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// The shared memory of a block.
struct Shared {
  float floats[kWarp];
  int counts[kWarps];
  float maxima[kAtpTileRows], shares[kAtpTileRows];
};

// The choice of one token and KV head.
struct Choice {
  const AtpReadArgs& a;
  AtpSequence s;
  AtpTile t;
  int64_t head;
  int n_far;       // tokens, sinks included
  float* scores;   // [n_rows, n_far]
  float* weights;  // [n_far]
};

// Finds for each row the factor that makes exp(score - maximum) of a far token its share of all
// weights.
__device__ __forceinline__ void FindShares(const Choice& c, Shared& shared) {
  const int64_t n_exact_end = c.t.n_parts - 1;  // the last part is the chosen tokens
  for (int row = 0; row < c.t.n_rows; ++row) {
    const float* scores = c.scores + int64_t{row} * c.n_far;
    float top = atp::kHidden;
    for (int i = threadIdx.x; i < c.n_far; i += kThreads) top = fmaxf(top, scores[i]);
    top = BlockMax(top, shared.floats);
    float sum = 0;
    for (int i = threadIdx.x; i < c.n_far; i += kThreads) sum += expf(scores[i] - top);
    sum = BlockSum(sum, shared.floats);
    if (threadIdx.x == 0) {
      atp::Sum<1> near;
      for (int64_t part = c.t.n_far_parts; part < n_exact_end; ++part) {
        const float* slot =
            atp::SlotRow(c.a, c.t.first_slot + part, c.head, row) + c.a.model.head_dim;
        atp::Sum<1> exact;
        exact.max = slot[0], exact.weights = slot[1];
        near.Fold(exact);
      }
      const float most = fmaxf(near.max, top), factor = expf(top - most);
      shared.maxima[row] = top;
      shared.shares[row] = factor / fmaf(near.weights, expf(near.max - most), sum * factor);
    }
    __syncthreads();
  }
}

// Sums the shares of far tokens over query heads.
__device__ __forceinline__ void SumWeights(const Choice& c, const Shared& shared) {
  for (int i = threadIdx.x; i < c.n_far; i += kThreads) {
    float sum = 0;
    for (int row = 0; row < c.t.n_rows; ++row) {
      const float weight = expf(c.scores[int64_t{row} * c.n_far + i] - shared.maxima[row]);
      // A single query head needs no shares: they are in the same order as the weights.
      sum = c.t.n_rows == 1 ? weight : fmaf(shared.shares[row], weight, sum);
    }
    c.weights[i] = sum;
  }
  __syncthreads();
}

// Floats that are not negative order like their bits; NaN is larger than all.
__device__ __forceinline__ uint32_t KeyOf(const Choice& c, int i) {
  return __float_as_uint(c.weights[i]);
}

__device__ __forceinline__ int CountFrom(const Choice& c, int64_t least, Shared& shared) {
  int n = 0;
  for (int i = static_cast<int>(c.s.n_sinks) + threadIdx.x; i < c.n_far; i += kThreads) {
    n += int64_t{KeyOf(c, i)} >= least ? 1 : 0;
  }
  return BlockTotal(n, shared.counts);
}

// Returns the highest key that n_wanted tokens reach, or a key that exactly n_wanted tokens reach.
__device__ __forceinline__ int64_t FindThreshold(const Choice& c, int n_wanted, Shared& shared) {
  int64_t low = 0, high = int64_t{1} << 32;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const int n = CountFrom(c, middle, shared);
    if (n == n_wanted) return middle;
    if (n > n_wanted) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// How many threads of the block before this thread vote, and how many do in all.
struct Rank {
  int before = 0, all = 0;
};
__device__ __forceinline__ Rank RankOf(bool votes, Shared& shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned ballot = __ballot_sync(0xffffffffu, votes);
  __syncthreads();
  if (lane == 0) shared.counts[warp] = __popc(ballot);
  __syncthreads();
  Rank rank;
  rank.before = __popc(ballot & ((1u << lane) - 1));
  for (int w = 0; w < kWarps; ++w) {
    rank.before += w < warp ? shared.counts[w] : 0;
    rank.all += shared.counts[w];
  }
  return rank;
}

// One block of threads per token and KV head.
__global__ __launch_bounds__(kThreads) void ChooseKernel(AtpChooseArgs a) {
  __shared__ Shared shared;
  const AtpReadArgs& read = a.read;
  const int32_t tile = a.chosen_tiles[blockIdx.x];
  if (tile == kAtpNoTile) return;
  Choice c{read, {}, read.tiles[tile], blockIdx.y, 0, nullptr, nullptr};
  c.s = read.sequences[c.t.sequence];
  c.n_far = static_cast<int>(c.t.n_far_blocks * c.s.block_tokens);
  c.scores = read.scores + c.t.first_score + c.head * c.t.n_rows * c.n_far;
  c.weights = read.weights + c.t.first_score + c.head * c.n_far;
  FindShares(c, shared);
  SumWeights(c, shared);
  const int n_choosable = c.n_far - static_cast<int>(c.s.n_sinks);
  const int n_wanted = c.s.n_refined < n_choosable ? static_cast<int>(c.s.n_refined) : n_choosable;
  const int64_t least = FindThreshold(c, n_wanted, shared);
  int n_equal = n_wanted - CountFrom(c, least + 1, shared);  // equal ones that are chosen
  int32_t* chosen = read.chosen + (c.t.choice * read.model.n_kv_heads + c.head) * read.max_refined;
  for (int first = static_cast<int>(c.s.n_sinks); first < c.n_far; first += kThreads) {
    const int i = first + threadIdx.x;
    const int64_t key = i < c.n_far ? int64_t{KeyOf(c, i)} : -1;
    const Rank equal = RankOf(key == least, shared);
    const bool is_chosen = key > least || (key == least && equal.before < n_equal);
    const Rank rank = RankOf(is_chosen, shared);
    if (is_chosen) {
      chosen[rank.before] = i;
      for (int row = 0; row < c.t.n_rows; ++row) {
        c.scores[int64_t{row} * c.n_far + i] = atp::kHidden;
      }
    }
    chosen += rank.all;
    n_equal -= equal.all < n_equal ? equal.all : n_equal;
  }
}

}  // namespace

void AtpChooseOnDevice(Device& device, const AtpChooseArgs& args) {
  Launch(device, ChooseKernel,
         {.blocks_x = args.n_tiles, .blocks_y = args.read.model.n_kv_heads, .threads = kThreads},
         args);
}

}  // namespace lowkey
