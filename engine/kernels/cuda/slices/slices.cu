// Attention over slices of a layer's input: efficient without stored keys, and super.

#include <cfloat>

#include "engine/base/round_up.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kPage = kPageTokens;
constexpr int kTokens = kPage / kWarp;  // tokens of a page per lane
constexpr int kWarps = 8;

// The number of keys' tiles, which come first in a page's layer.
__host__ __device__ int64_t KeyTiles(const SliceStep& s) { return s.has_keys ? s.n_kv_heads : 0; }

template <typename T>
__device__ T* TileOf(const SliceStep& s, const SliceSequence& sequence, int64_t page,
                     int64_t tile) {
  const int64_t n_tiles = s.n_kv_heads * (1 + (s.has_keys ? 1 : 0) + (s.is_aligned ? 1 : 0));
  return reinterpret_cast<T*>(s.pages[sequence.first_page_entry + page]) +
         (s.layer * n_tiles + tile) * s.head_dim * kPage;
}

// One warp writes one tile of a row.
template <typename T>
__global__ void WriteKernel(SliceWriteArgs a) {
  const SliceStep& s = a.step;
  const int64_t n_keys = KeyTiles(s), n_tiles = n_keys + s.n_kv_heads;
  const int64_t task = int64_t{blockIdx.x} * kWarps + WarpIndex();
  if (task >= a.n_rows * n_tiles) return;
  const SliceRows row = a.rows[task / n_tiles];
  if (row.n_rows == 0) return;
  const int64_t tile = task % n_tiles;
  const SliceSequence sequence = s.sequences[row.sequence];
  const int64_t step_row = sequence.first_row + row.first_row;
  const int64_t position = sequence.first_position + row.first_row;
  const float* from =
      (tile < n_keys ? a.keys + tile * s.head_dim : a.values + (tile - n_keys) * s.head_dim) +
      step_row * a.ld;
  T* to = TileOf<T>(s, sequence, position / kPage, tile) + position % kPage;
  for (int64_t j = LaneIndex(); j < s.head_dim; j += kWarp) to[j * kPage] = FromFloat<T>(from[j]);
}

// A block has rows of one head; a warp has some columns, a lane every 32nd token.
template <typename T, typename W>
__global__ void AlignKernel(SliceAlignArgs a) {
  const SliceStep& s = a.step;
  const SliceRows rows = a.rows[blockIdx.x];
  if (rows.n_rows == 0) return;
  const SliceSequence sequence = s.sequences[rows.sequence];
  const int64_t first = sequence.first_position + rows.first_row, last = first + rows.n_rows - 1;
  const int64_t head = blockIdx.y;
  for (int64_t j = WarpIndex(); j < s.head_dim; j += kWarps) {
    float sums[kSliceAlignRows] = {};
    for (int64_t token = LaneIndex(); token <= last; token += kWarp) {
      const T* values = TileOf<T>(s, sequence, token / kPage, KeyTiles(s) + head);
      const float v = ToFloat(values[j * kPage + token % kPage]);
      for (int64_t i = 0; i < kSliceAlignRows; ++i) {
        const int64_t row = first + i;
        if (row > last || token > row) continue;
        const float w = ToFloat(static_cast<const W*>(a.weights)[row * (row + 1) / 2 + token]);
        sums[i] = fmaf(w, v, sums[i]);
      }
    }
    for (int64_t i = 0; i < kSliceAlignRows; ++i) {
      const int64_t row = first + i;
      if (row > last) break;
      const float sum = WarpSum(sums[i]);
      if (LaneIndex() != 0) continue;
      T* to = TileOf<T>(s, sequence, row / kPage, KeyTiles(s) + s.n_kv_heads + head);
      to[j * kPage + row % kPage] = FromFloat<T>(sum);
    }
  }
}

// One row's state of a warp, in shared memory: sums of values [head_dim] under weights exp(score -
// max), the weights of a page, max, and the sum of weights.
struct RowState {
  float *out, *weights, *max, *sum;
};

__device__ inline int64_t StateFloats(int64_t head_dim) { return head_dim + kPage + 2; }
__device__ inline RowState StateOf(float* shared, int64_t index, int64_t head_dim) {
  float* at = shared + index * StateFloats(head_dim);
  return {at, at + head_dim, at + head_dim + kPage, at + head_dim + kPage + 1};
}

// Scores of a page's tokens, two per lane.
template <int kRows>
struct Scores {
  float x[kRows][kTokens] = {};
};

// The keys and queries of a block's rows.
template <typename T>
struct ScoreInput {
  const T* keys = nullptr;          // [head_dim, 64]
  const float* rotation = nullptr;  // the page's; nullptr: keys are rotated already
  const float* q = nullptr;         // the first row
  int64_t ld_q = 0;
  int64_t head_dim = 0;
  int n_rows = 0;
};

template <typename T, int kRows>
__device__ void Score(const ScoreInput<T>& in, Scores<kRows>& scores) {
  const int64_t half = in.head_dim / 2;
  for (int64_t j = 0; j < half; ++j) {
    for (int t = 0; t < kTokens; ++t) {
      const int token = LaneIndex() + t * kWarp;
      float first = ToFloat(in.keys[j * kPage + token]);
      float second = ToFloat(in.keys[(half + j) * kPage + token]);
      if (in.rotation != nullptr) {
        const float c = in.rotation[j * kPage + token];
        const float sin = in.rotation[(half + j) * kPage + token];
        const float turned = fmaf(first, c, -(second * sin));
        second = fmaf(second, c, first * sin);
        first = turned;
      }
      for (int i = 0; i < kRows; ++i) {
        const float* q = in.q + (i < in.n_rows ? i : 0) * in.ld_q;
        scores.x[i][t] = fmaf(q[j], first, scores.x[i][t]);
        scores.x[i][t] = fmaf(q[half + j], second, scores.x[i][t]);
      }
    }
  }
  if (in.head_dim % 2 == 0) return;
  for (int t = 0; t < kTokens; ++t) {  // heads of odd length have no rotation
    const float key = ToFloat(in.keys[(in.head_dim - 1) * kPage + LaneIndex() + t * kWarp]);
    for (int i = 0; i < kRows; ++i) {
      const float* q = in.q + (i < in.n_rows ? i : 0) * in.ld_q;
      scores.x[i][t] = fmaf(q[in.head_dim - 1], key, scores.x[i][t]);
    }
  }
}

// Adds a page to one row, which sees token t of the page where begin <= t < end.
template <typename T>
__device__ void AddPage(const float (&scores)[kTokens], int64_t begin, int64_t end, const T* values,
                        int64_t head_dim, const RowState& state) {
  const float scale = 1.0f / sqrtf(static_cast<float>(head_dim));
  float most = -FLT_MAX;
  for (int t = 0; t < kTokens; ++t) {
    const int token = LaneIndex() + t * kWarp;
    if (token >= begin && token < end) most = fmaxf(most, scores[t] * scale);
  }
  most = WarpMax(most);
  const float before = *state.max, now = fmaxf(before, most);
  const float factor = expf(before - now);
  float sum = 0;
  __syncwarp();  // the state may still be read
  for (int t = 0; t < kTokens; ++t) {
    const int token = LaneIndex() + t * kWarp;
    const float w = token >= begin && token < end ? expf(fmaf(scores[t], scale, -now)) : 0.0f;
    state.weights[token] = w;
    sum += w;
  }
  sum = WarpSum(sum);
  if (LaneIndex() == 0) {
    *state.max = now;
    *state.sum = fmaf(*state.sum, factor, sum);
  }
  __syncwarp();
  for (int64_t j = LaneIndex(); j < head_dim; j += kWarp) {
    float added = 0;
    for (int64_t t = begin; t < end; ++t) {
      added = fmaf(state.weights[t], ToFloat(values[j * kPage + t]), added);
    }
    state.out[j] = fmaf(state.out[j], factor, added);
  }
}

// Joins the warps' parts of a row, in the order of warps.
__device__ inline void JoinWarps(const SliceAttendArgs& a, float* shared, int64_t row, int n_rows,
                                 float* out) {
  const int64_t d = a.step.head_dim;
  float most = -FLT_MAX;
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, *StateOf(shared, w * n_rows + row, d).max);
  for (int64_t j = threadIdx.x; j < d; j += blockDim.x) {
    float sum = 0, weights = 0;
    for (int w = 0; w < kWarps; ++w) {
      const RowState part = StateOf(shared, w * n_rows + row, d);
      const float factor = expf(*part.max - most);
      sum = fmaf(part.out[j], factor, sum);
      weights = fmaf(*part.sum, factor, weights);
    }
    out[j] = sum / weights;
  }
}

// A block has rows of one query head; warp w reads pages w, w + kWarps and so on.
template <typename T, int kRows>
__global__ void __launch_bounds__(kWarps* kWarp) AttendKernel(SliceAttendArgs a) {
  LK_DYNAMIC_SHARED(float, shared);
  const SliceStep& s = a.step;
  const SliceRows rows = a.rows[blockIdx.x];
  if (rows.n_rows == 0) return;
  const SliceSequence sequence = s.sequences[rows.sequence];
  const int64_t d = s.head_dim, head = blockIdx.y;
  const int64_t key_tile = head / (s.n_heads / s.n_kv_heads);
  const int64_t value_tile = KeyTiles(s) + key_tile;
  const int64_t first = sequence.first_position + rows.first_row, last = first + rows.n_rows - 1;
  for (int i = 0; i < kRows; ++i) {
    const RowState state = StateOf(shared, WarpIndex() * kRows + i, d);
    for (int64_t j = LaneIndex(); j < d; j += kWarp) state.out[j] = 0;
    if (LaneIndex() == 0) *state.max = -FLT_MAX;
    if (LaneIndex() == 0) *state.sum = 0;
  }
  __syncwarp();
  const int64_t step_row = sequence.first_row + rows.first_row;
  ScoreInput<T> in{nullptr, nullptr, a.q + step_row * a.ld_q + head * d, a.ld_q, d, rows.n_rows};
  const int64_t begin = first - a.n_visible + 1;  // the first token that is seen
  const int64_t first_page = begin > 0 ? begin / kPage : 0;
  const int64_t skipped = (first_page + kWarps - 1 - WarpIndex()) / kWarps * kWarps;
  for (int64_t page = WarpIndex() + skipped; page <= last / kPage; page += kWarps) {
    in.keys = TileOf<T>(s, sequence, page, key_tile);
    if (!s.has_keys) in.rotation = a.rotations + page * (d / 2 * 2) * kPage;
    Scores<kRows> scores;
    Score(in, scores);
    const T* values =
        TileOf<T>(s, sequence, page, s.is_aligned ? value_tile + s.n_kv_heads : value_tile);
    for (int i = 0; i < kRows && i < rows.n_rows; ++i) {
      const int64_t from = first + i - a.n_visible + 1 - page * kPage;
      const int64_t to = first + i + 1 - page * kPage;
      const int64_t low = from > 0 ? from : 0, high = to < kPage ? to : kPage;
      if (low >= high) continue;
      AddPage(scores.x[i], low, high, values, d, StateOf(shared, WarpIndex() * kRows + i, d));
    }
  }
  __syncthreads();
  for (int i = 0; i < rows.n_rows; ++i) {
    JoinWarps(a, shared, i, kRows, a.out + (step_row + i) * a.ld_out + head * d);
  }
}

template <typename T>
void Attend(Device& device, const SliceAttendArgs& a) {
  const bool single = a.max_rows == 1;
  const int64_t n_rows = single ? 1 : kSliceAttendRows;
  const int64_t n_floats = kWarps * n_rows * (a.step.head_dim + kPage + 2);
  Launch(device, single ? AttendKernel<T, 1> : AttendKernel<T, kSliceAttendRows>,
         {.blocks_x = a.n_blocks,
          .blocks_y = a.step.n_heads,
          .threads = kWarps * kWarp,
          .shared_bytes = n_floats * static_cast<int64_t>(sizeof(float))},
         a);
}

template <typename T>
void Align(Device& device, const SliceAlignArgs& a) {
  const bool wide = a.weight_type == StorageType::kFloat32;
  Launch(device, wide ? AlignKernel<T, float> : AlignKernel<T, uint16_t>,
         {.blocks_x = a.n_blocks, .blocks_y = a.step.n_kv_heads, .threads = kWarps * kWarp}, a);
}

bool IsWide(const SliceStep& s) { return s.cache_type == StorageType::kFloat32; }

}  // namespace

void SliceWriteOnDevice(Device& device, const SliceWriteArgs& args) {
  const int64_t n_tasks = args.n_rows * (KeyTiles(args.step) + args.step.n_kv_heads);
  Launch(device, IsWide(args.step) ? WriteKernel<float> : WriteKernel<uint16_t>,
         {.blocks_x = (n_tasks + kWarps - 1) / kWarps, .threads = kWarps * kWarp}, args);
}

void SliceAlignOnDevice(Device& device, const SliceAlignArgs& args) {
  IsWide(args.step) ? Align<float>(device, args) : Align<uint16_t>(device, args);
}

void SliceAttendOnDevice(Device& device, const SliceAttendArgs& args) {
  IsWide(args.step) ? Attend<float>(device, args) : Attend<uint16_t>(device, args);
}

}  // namespace lowkey
