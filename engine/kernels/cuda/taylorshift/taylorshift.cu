// TaylorShift (Nauen et al. 2024): folds pages into the state, and reads the state or cached
// tokens.
//
// Folding, reading a state and reading pages are the same product of panels: features times values
// over tokens, features times S over features, weights times values over tokens.

#include <type_traits>

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/taylorshift/panels.h"

namespace lowkey {
namespace {

using namespace taylor;

// ---------------------------------------------------------------- features

template <typename T>
__device__ inline float FeatureOf(const Factors& f, const T* x, int64_t stride) {
  const float one = f.one < 0 ? 1.0f : ToFloat(x[f.one * stride]);
  const float other = f.other < 0 ? 1.0f : ToFloat(x[f.other * stride]);
  return f.scale * (one * other);
}

// ---------------------------------------------------------------- pages

// Loads b = tokens first .. first + kDepth - 1 of a page's values, 0 from token `end` on: memory
// that nobody has written may hold NaN.
template <typename T, typename B>
__device__ void LoadValues(const Tile<T>& tile, int64_t n_columns, int first, int end,
                           const Panels<B>& p, float* b) {
  for (int i = Tid(); i < kDepth * p.n_columns; i += B::kThreads) {
    const int k = i / p.n_columns, j = i % p.n_columns;
    const T* from = tile.values + (first + k) * n_columns + p.first_column + j;
    b[k * p.ld + j] = first + k < end ? ToFloat(*from) : 0.0f;
  }
}

// Returns the factor that makes x a unit vector, 1 / |x|, by one warp.
__device__ inline float UnitScaleOfWarp(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t j = LaneIndex(); j < n; j += kWarp) sum = fma(double{x[j]}, double{x[j]}, sum);
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  }
  return static_cast<float>(1.0 / fmax(sqrt(sum), 1e-12));
}

// One warp writes one query head or KV head of a row.
template <typename T>
__global__ void WriteKernel(TaylorWriteArgs a) {
  const TaylorStep& s = a.step;
  const int64_t n_heads = s.n_heads + s.n_kv_heads, d = s.head_dim, e = s.key_dim;
  const int64_t task = int64_t{blockIdx.x} * (blockDim.x / kWarp) + WarpIndex();
  if (task >= a.n_rows * n_heads) return;
  const int64_t index = task / n_heads, head = task % n_heads;
  const TaylorRow row = a.rows[index];
  if (row.sequence == kTaylorNone) return;
  const TaylorSequence sequence = s.sequences[row.sequence];
  const int64_t step_row = sequence.first_row + row.row;
  if (head < s.n_heads) {
    const float* from = a.q + step_row * a.ld + head * e;
    const float unit =
        sequence.is_normalized ? UnitScaleOfWarp(from, e) : 1.0f / sqrtf(static_cast<float>(e));
    const int64_t to = ((sequence.first_query + row.row) * s.n_heads + head) * e;
    const float scale = sequence.is_normalized ? a.tau[head] * unit : unit;
    for (int64_t j = LaneIndex(); j < e; j += kWarp) s.queries[to + j] = from[j] * scale;
    if (s.near_queries == nullptr) return;
    const float near = sequence.is_normalized ? a.tau_window[head] * unit : unit;
    for (int64_t j = LaneIndex(); j < e; j += kWarp) s.near_queries[to + j] = from[j] * near;
    return;
  }
  const int64_t kv_head = head - s.n_heads, position = sequence.first_position + row.row;
  const float* key = a.k + step_row * a.ld + kv_head * e;
  const float* value = a.v + step_row * a.ld + kv_head * d;
  const float scale = sequence.is_normalized ? UnitScaleOfWarp(key, e) : 1.0f;
  const Tile<T> tile = TileOf<T>(s, sequence, position / kPage, kv_head);
  const int64_t slot = position % kPage;
  for (int64_t j = LaneIndex(); j < e; j += kWarp) {
    tile.keys[j * kPage + slot] = FromFloat<T>(key[j] * scale);
  }
  for (int64_t j = LaneIndex(); j < s.n_columns; j += kWarp) {
    tile.values[slot * s.n_columns + j] = FromFloat<T>(j < d ? value[j] : 0.0f);
  }
}

// ---------------------------------------------------------------- folding

// A block folds kRows features of one KV head.
template <typename T, typename B>
__global__ void __launch_bounds__(B::kThreads) FoldKernel(TaylorFoldArgs a) {
  LK_DYNAMIC_SHARED(float, shared);
  const TaylorStep& s = a.step;
  const Panels<B> p = MakePanels<B>(shared, s.head_dim);
  const int64_t n_tiles = (s.n_features + B::kRows - 1) / B::kRows;
  const TaylorFold fold = a.folds[blockIdx.x / n_tiles];
  if (fold.sequence == kTaylorNone) return;
  const int64_t first = blockIdx.x % n_tiles * B::kRows, kv_head = blockIdx.y;
  const int64_t left = s.n_features - first;
  const int n_rows = static_cast<int>(left < B::kRows ? left : B::kRows);
  const TaylorSequence sequence = s.sequences[fold.sequence];
  float* head = StateOf(s, sequence, kv_head);
  float* state = head + first * s.n_columns + p.first_column;
  float* weights = head + s.n_features * s.n_columns + first;

  BlockSums<B> sums(p, n_rows);
  const bool has_state = fold.first_page > 0;
  for (int i = 0; i < B::kThreadRows && sums.is_used && has_state; ++i) {
    if (sums.row + i >= n_rows) break;
    sums.sums.LoadRow(i, state + (sums.row + i) * s.n_columns + sums.column);
  }
  if (sums.has_weights && has_state) sums.weights = weights[Tid()];
  if (Tid() < kDepth) p.ones[Tid()] = 1.0f;
  constexpr int kWarps = B::kThreads / kWarp, kFeatures = B::kRows / kWarps;
  Factors factors[kFeatures];  // the features of this warp
  for (int i = 0; i < kFeatures; ++i) {
    factors[i] = FactorsOf(first + WarpIndex() + i * kWarps, s, 0.5f);
  }
  for (int64_t page = fold.first_page; page < fold.end_page; ++page) {
    const Tile<T> tile = TileOf<T>(s, sequence, page, kv_head);
    for (int token = 0; token < kPage; token += kDepth) {
      __syncthreads();  // the panels may still be read
      for (int i = 0; i < kFeatures; ++i) {
        p.a[LaneIndex() * B::kLdA + WarpIndex() + i * kWarps] =
            FeatureOf(factors[i], tile.keys + token + LaneIndex(), kPage);
      }
      LoadValues(tile, s.n_columns, token, kPage, p, p.b);
      __syncthreads();
      sums.Add(p, p.b, p.ones);
    }
  }
  for (int i = 0; i < B::kThreadRows && sums.is_used; ++i) {
    if (sums.row + i >= n_rows) break;
    sums.sums.StoreRow(i, state + (sums.row + i) * s.n_columns + sums.column);
  }
  if (sums.has_weights) weights[Tid()] = sums.weights;
}

// ---------------------------------------------------------------- reading

template <typename B>
__device__ void Save(const TaylorStep& s, const Reading& reading, const Panels<B>& p,
                     const BlockSums<B>& sums) {
  for (int i = 0; i < B::kThreadRows && sums.row + i < reading.block.n_rows; ++i) {
    sums.sums.StoreRow(i, reading.SlotOf(s, sums.row + i) + p.first_column + sums.column);
  }
  if (sums.has_weights) reading.SlotOf(s, Tid())[s.n_columns] = sums.weights;
}

template <typename B>
__global__ void __launch_bounds__(B::kThreads) ReadStateKernel(TaylorReadArgs a) {
  if (!HasPiece(a)) return;
  LK_DYNAMIC_SHARED(float, shared);
  const TaylorStep& s = a.step;
  const Panels<B> p = MakePanels<B>(shared, s.head_dim);
  const Reading reading(a);
  const int n_rows = reading.block.n_rows;
  const int64_t begin = reading.piece.begin, end = reading.piece.end;
  const float* head = StateOf(s, reading.sequence, reading.kv_head);
  BlockSums<B> sums(p, n_rows);
  const auto begin_panel = [&](int64_t first, int panel) {
    BeginStatePanel(s, head, first, end, p.first_column, p.n_columns, p.b + panel * kDepth * p.ld,
                    p.ld, p.ones + panel * kDepth);
  };
  begin_panel(begin, 0);
  int now = 0;  // which of the two panels of S is read
  for (int64_t first = begin; first < end; first += kDepth, now ^= 1) {
    const Factors factors = FactorsOf(first + LaneIndex(), s, 1.0f);
    for (int r = WarpIndex(); r < n_rows; r += B::kThreads / kWarp) {
      p.a[LaneIndex() * B::kLdA + r] = FeatureOf(factors, reading.QueryOf(s, r), 1);
    }
    WaitCopies<0>();
    __syncthreads();
    if (first + kDepth < end) begin_panel(first + kDepth, now ^ 1);
    sums.Add(p, p.b + now * kDepth * p.ld, p.ones + now * kDepth);
    __syncthreads();
  }
  Save(s, reading, p, sums);
}

// The weights of far tokens and of those in the window. The latter are scores, which
// WeighWindow turns into weights.
struct FarWeight {
  static constexpr float kHidden = 0;
  __device__ static float Of(float x) { return fmaf(x, fmaf(0.5f, x, 1.0f), 1.0f); }
};
struct NearScore {
  static constexpr float kHidden = -INFINITY;
  __device__ static float Of(float x) { return x; }
};

// Computes a = the rows' weights W of the visible tokens among kDepth tokens of a page from `first`
// on.
template <typename W, typename T, typename B>
__device__ void WeighTokens(const TaylorStep& s, const Reading& reading, const float* queries,
                            const Tile<T>& tile, int64_t page, int first, int end,
                            const Panels<B>& p) {
  constexpr int kGroups = kDepth / kColumns;
  const int row = Tid() / kGroups * B::kScoreRows, column = Tid() % kGroups * kColumns;
  const int n_rows = reading.block.n_rows;
  Sums<B::kScoreRows> scores;
  for (int64_t j0 = 0; j0 < s.key_dim; j0 += kDepth) {
    const int64_t left = s.key_dim - j0;
    const int n = static_cast<int>(left < kDepth ? left : kDepth);
    __syncthreads();  // the panels may still be read
    for (int r = WarpIndex(); r < n_rows; r += B::kThreads / kWarp) {
      p.a[LaneIndex() * B::kLdA + r] =
          LaneIndex() < n ? reading.QueryOf(s, r, queries)[j0 + LaneIndex()] : 0.0f;
    }
    for (int k = WarpIndex(); k < kDepth; k += B::kThreads / kWarp) {
      const bool exists = k < n && first + LaneIndex() < end;
      p.keys()[k * kDepth + LaneIndex()] =
          exists ? ToFloat(tile.keys[(j0 + k) * kPage + first + LaneIndex()]) : 0.0f;
    }
    __syncthreads();
    if (row < n_rows) AddPanels(p.a + row, B::kLdA, p.keys() + column, kDepth, scores);
  }
  __syncthreads();
  for (int i = 0; i < B::kScoreRows && row + i < n_rows; ++i) {
    const int64_t n_seen = reading.PositionOf(row + i) + 1 - page * kPage - first;
    for (int j = 0; j < kColumns; ++j) {
      p.a[(column + j) * B::kLdA + row + i] =
          column + j < n_seen ? W::Of(scores.x[i][j]) : W::kHidden;
    }
  }
}

// Turns the scores of row Tid() into exp(score - top), where `top` becomes the largest score so
// far, and notes the factor of the row's sums. A row sees the first token of its first page.
template <typename B>
__device__ void WeighWindow(int n_rows, const Panels<B>& p, float& top) {
  if (Tid() < B::kRows) p.factors[Tid()] = 1;
  if (Tid() >= n_rows) return;
  float* scores = p.a + Tid();
  const float before = top;
  for (int k = 0; k < kDepth; ++k) top = fmaxf(top, scores[k * B::kLdA]);
  p.factors[Tid()] = expf(before - top);
  for (int k = 0; k < kDepth; ++k) scores[k * B::kLdA] = expf(scores[k * B::kLdA] - top);
}

// Far pages, or with W = NearScore those in the window.
template <typename W, typename T, typename B>
__global__ void __launch_bounds__(B::kThreads) ReadPagesKernel(TaylorReadArgs a) {
  if (!HasPiece(a)) return;
  constexpr bool kIsNear = std::is_same_v<W, NearScore>;
  LK_DYNAMIC_SHARED(float, shared);
  const TaylorStep& s = a.step;
  const Panels<B> p = MakePanels<B>(shared, s.head_dim);
  const Reading reading(a);
  const int n_rows = reading.block.n_rows;
  const int64_t n_tokens = reading.PositionOf(n_rows - 1) + 1;  // tokens that the last row sees
  BlockSums<B> sums(p, n_rows);
  const float* queries = kIsNear ? s.near_queries : s.queries;
  float top = -INFINITY;  // of row Tid()
  if (Tid() < kDepth) p.ones[Tid()] = 1.0f;
  for (int64_t page = reading.piece.begin; page < reading.piece.end; ++page) {
    const Tile<T> tile = TileOf<T>(s, reading.sequence, page, reading.kv_head);
    const int64_t left = n_tokens - page * kPage;
    const int end = static_cast<int>(left < kPage ? left : kPage);
    for (int token = 0; token < end; token += kDepth) {
      WeighTokens<W>(s, reading, queries, tile, page, token, end, p);
      LoadValues(tile, s.n_columns, token, end, p, p.b);
      __syncthreads();
      if constexpr (kIsNear) {
        WeighWindow(n_rows, p, top);
        __syncthreads();
        sums.Scale(p);
      }
      sums.Add(p, p.b, p.ones);
    }
  }
  Save(s, reading, p, sums);
  if (kIsNear && sums.has_weights) reading.SlotOf(s, Tid())[s.n_columns + 1] = top;
}

// ---------------------------------------------------------------- finishing

// One warp finishes one row.
__global__ void FinishKernel(TaylorFinishArgs a) {
  const TaylorStep& s = a.step;
  const TaylorBlock block = a.blocks[blockIdx.x];
  const int64_t r = int64_t{blockIdx.z} * (blockDim.x / kWarp) + WarpIndex();
  if (r >= block.n_rows) return;
  const TaylorSequence sequence = s.sequences[block.sequence];
  const int64_t group = s.n_heads / s.n_kv_heads, kv_head = blockIdx.y;
  const int64_t token = (block.first_row + r) / group, head = (block.first_row + r) % group;
  const int64_t ld = s.n_columns + kColumns;
  const int64_t slot_floats = block.n_rows * s.n_kv_heads * ld;
  const float* slots = s.slots + ((block.first_slot + r) * s.n_kv_heads + kv_head) * ld;
  const int64_t n_far_slots = block.n_slots - block.n_near_slots;
  // Returns a column's sum over the state's slots, plus its sum over the slots of far pages.
  const auto far_sum_of = [&](int64_t column) {
    float of_state = 0, of_pages = 0;
    for (int64_t i = 0; i < n_far_slots; ++i) {
      (i < block.n_state_slots ? of_state : of_pages) += slots[i * slot_floats + column];
    }
    return of_state + of_pages;
  };
  const bool has_window = block.n_near_slots > 0;
  // exp(-max) would overflow where all near scores are low: the common scale is that of the larger
  // of the near weights and 1.
  float top = n_far_slots > 0 ? 0.0f : -INFINITY;
  for (int64_t i = n_far_slots; i < block.n_slots; ++i) {
    top = fmaxf(top, slots[i * slot_floats + s.n_columns + 1]);
  }
  const float far_factor = !has_window ? 1.0f : n_far_slots > 0 ? expf(-top) : 0.0f;
  const auto near_sum_of = [&](int64_t column) {
    float sum = 0;
    for (int64_t i = n_far_slots; i < block.n_slots; ++i) {
      const float* slot = slots + i * slot_floats;
      sum += slot[column] * expf(slot[s.n_columns + 1] - top);
    }
    return sum;
  };
  const auto n_seen = static_cast<float>(sequence.first_position + token + 1);
  // No far weight is below 1/2. Where scores are large, rounding of the state's sums could say
  // otherwise.
  const float n_far = has_window ? static_cast<float>(block.n_far_tokens) : n_seen;
  const float far_weights = fmaxf(far_sum_of(s.n_columns), 0.5f * n_far);
  float scale = 1.0f / (far_weights * far_factor + near_sum_of(s.n_columns));
  if (sequence.is_normalized && !has_window) {
    scale *= sqrtf(n_seen / static_cast<float>(s.head_dim));
  }
  float* out =
      a.out + (sequence.first_row + token) * a.ld_out + (kv_head * group + head) * s.head_dim;
  for (int64_t j = LaneIndex(); j < s.head_dim; j += kWarp) {
    out[j] = (far_sum_of(j) * far_factor + near_sum_of(j)) * scale;
  }
}

// ---------------------------------------------------------------- launching

int64_t ColumnTiles(const TaylorStep& s) { return (s.head_dim + kMaxColumns - 1) / kMaxColumns; }
bool IsNarrow(const TaylorStep& s) { return s.head_dim <= 64; }

template <typename B>
LaunchShape ReadShape(const TaylorReadArgs& a) {
  return {a.n_pieces, a.step.n_kv_heads, ColumnTiles(a.step), B::kThreads,
          Panels<B>::Bytes(a.step.head_dim)};
}

template <typename W, typename B>
void ReadPagesBy(Device& device, const TaylorReadArgs& a) {
  const bool wide = a.step.cache_type == StorageType::kFloat32;
  Launch(device, wide ? ReadPagesKernel<W, float, B> : ReadPagesKernel<W, uint16_t, B>,
         ReadShape<B>(a), a);
}

template <typename B>
void ReadPages(Device& device, const TaylorReadArgs& a) {
  a.is_near ? ReadPagesBy<NearScore, B>(device, a) : ReadPagesBy<FarWeight, B>(device, a);
}

template <typename B>
void Fold(Device& device, const TaylorFoldArgs& a) {
  const bool wide = a.step.cache_type == StorageType::kFloat32;
  const int64_t n_tiles = (a.step.n_features + B::kRows - 1) / B::kRows;
  Launch(device, wide ? FoldKernel<float, B> : FoldKernel<uint16_t, B>,
         {a.n_folds * n_tiles, a.step.n_kv_heads, ColumnTiles(a.step), B::kThreads,
          Panels<B>::Bytes(a.step.head_dim)},
         a);
}

}  // namespace

void TaylorWriteOnDevice(Device& device, const TaylorWriteArgs& args) {
  constexpr int kWarps = 8;
  const int64_t n_tasks = args.n_rows * (args.step.n_heads + args.step.n_kv_heads);
  const bool wide = args.step.cache_type == StorageType::kFloat32;
  Launch(device, wide ? WriteKernel<float> : WriteKernel<uint16_t>,
         {.blocks_x = (n_tasks + kWarps - 1) / kWarps, .threads = kWarps * kWarp}, args);
}

void TaylorFoldOnDevice(Device& device, const TaylorFoldArgs& args) {
  if (TaylorHasTiles(args.step)) return TaylorFoldWithTiles(device, args);
  IsNarrow(args.step) ? Fold<ManyNarrow>(device, args) : Fold<ManyWide>(device, args);
}

void TaylorReadStateOnDevice(Device& device, const TaylorReadArgs& args) {
  if (TaylorHasTiles(args.step)) return TaylorReadStateWithTiles(device, args);
  const bool narrow = IsNarrow(args.step);
  if (args.max_rows == kTaylorFewRows) {
    Launch(device, narrow ? ReadStateKernel<FewNarrow> : ReadStateKernel<FewWide>,
           ReadShape<FewWide>(args), args);
  } else {
    Launch(device, narrow ? ReadStateKernel<ManyNarrow> : ReadStateKernel<ManyWide>,
           ReadShape<ManyWide>(args), args);
  }
}

void TaylorReadPagesOnDevice(Device& device, const TaylorReadArgs& args) {
  if (TaylorHasTiles(args.step) && !args.is_near) return TaylorReadPagesWithTiles(device, args);
  const bool narrow = IsNarrow(args.step);
  if (args.max_rows == kTaylorFewRows) {
    narrow ? ReadPages<FewNarrow>(device, args) : ReadPages<FewWide>(device, args);
  } else {
    narrow ? ReadPages<ManyNarrow>(device, args) : ReadPages<ManyWide>(device, args);
  }
}

void TaylorFinishOnDevice(Device& device, const TaylorFinishArgs& args) {
  constexpr int kWarps = 4;
  Launch(
      device, FinishKernel,
      {args.n_blocks, args.step.n_kv_heads, (args.max_rows + kWarps - 1) / kWarps, kWarps * kWarp},
      args);
}

}  // namespace lowkey
