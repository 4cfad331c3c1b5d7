// TaylorShift by tensor cores, in bf16 with fp32 sums. A number that bf16 cannot hold enters as the
// sum of two bf16: exact for features of keys, which are products of two bf16, and to about 2^-17
// for features of queries, weights of scores and the state.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/taylorshift/tiles.h"

namespace lowkey {
namespace {

using namespace taylor;

// ---------------------------------------------------------------- folding

// A feature of keys: the offsets of its two rows of keys in shared memory, and its scale.
struct KeyFeature {
  int one, other;
  float scale;

  template <int kDim>
  __device__ static KeyFeature Of(int64_t f, const TaylorStep& s) {
    const Factors x = FactorsOf(f, s, 0.5f);
    constexpr int kStride = PagePlanes<kDim>::kKeyStride;
    return {(x.one < 0 ? kDim : x.one) * kStride, (x.other < 0 ? kDim : x.other) * kStride,
            x.scale};
  }
  // Returns the feature of tokens `token` and token + 1.
  __device__ __forceinline__ SplitPair At(const uint16_t* keys, int token) const {
    const auto x = *reinterpret_cast<const uint32_t*>(keys + one + token);
    const auto y = *reinterpret_cast<const uint32_t*>(keys + other + token);
    return Split(scale * (LowOf(x) * LowOf(y)), scale * (HighOf(x) * HighOf(y)));
  }
};

// Moves a lane's features of a state and their sums to registers and back.
template <typename Shape, typename F>
__device__ __forceinline__ void WithStateRows(const TaylorStep& s, float* head, int64_t first,
                                              RowSums<Shape::kTiles>& sums, F exchange) {
  const int t = LaneIndex() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t f = first + LaneIndex() / 4 + 8 * half;
    if (f >= s.n_features) continue;
    float* row = head + f * s.n_columns + 2 * t;
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i) {
      exchange(row[8 * i], sums.x[i][2 * half]);
      exchange(row[8 * i + 1], sums.x[i][2 * half + 1]);
    }
    if (t == 0) exchange(head[s.n_features * s.n_columns + f], sums.weights[2 * half]);
  }
}

// A block folds kRows features of one KV head.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) FoldTilesKernel(TaylorFoldArgs a) {
  LK_DYNAMIC_SHARED(uint16_t, pages);
  using Planes = PagePlanes<Shape::kDim>;
  const TaylorStep& s = a.step;
  const int64_t n_tiles = (s.n_features + Shape::kRows - 1) / Shape::kRows;
  const TaylorFold fold = a.folds[blockIdx.x / n_tiles];
  if (fold.sequence == kTaylorNone) return;
  const int64_t first = blockIdx.x % n_tiles * Shape::kRows + Shape::FirstRow();
  const int64_t kv_head = blockIdx.y;
  const TaylorSequence sequence = s.sequences[fold.sequence];
  float* head = StateOf(s, sequence, kv_head);
  const int g = LaneIndex() / 4, t = LaneIndex() % 4;

  const auto begin_page = [&](int64_t page) {
    BeginPage<Shape>(TileOf<uint16_t>(s, sequence, page, kv_head), kPage,
                     pages + (page - fold.first_page) % 2 * Planes::kNumbers);
    CommitCopies();
  };
  begin_page(fold.first_page);
  for (int i = Tid(); i < 2 * kPage; i += Shape::kThreads) {
    pages[i / kPage * Planes::kNumbers + Shape::kDim * Planes::kKeyStride + i % kPage] = 0x3f80;
  }
  const KeyFeature features[2] = {KeyFeature::Of<Shape::kDim>(first + g, s),
                                  KeyFeature::Of<Shape::kDim>(first + g + 8, s)};
  const uint32_t ones = g == 0 ? 0x3f803f80u : 0;
  RowSums<Shape::kTiles> sums;
  if (fold.first_page > 0) {
    WithStateRows<Shape>(s, head, first, sums, [](float stored, float& sum) { sum = stored; });
  }
  for (int64_t page = fold.first_page; page < fold.end_page; ++page) {
    WaitCopies<0>();
    __syncthreads();  // the page is here, and the one before has been read by all
    if (page + 1 < fold.end_page) begin_page(page + 1);
    const uint16_t* keys = pages + (page - fold.first_page) % 2 * Planes::kNumbers;
    const uint16_t* values = keys + Planes::kValues;
#pragma unroll
    for (int token = 0; token < kPage; token += 16) {
      SplitTile tile;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile.Set(i, features[i % 2].At(keys, token + i / 2 * 8 + 2 * t));
      }
      AddValues(tile, values + token * Planes::kValueStride, Planes::kValueStride, sums);
      MultiplyTiles(sums.weights, tile.major, ones, ones);
      MultiplyTiles(sums.weights, tile.minor, ones, ones);
    }
  }
  WithStateRows<Shape>(s, head, first, sums, [](float& stored, float sum) { stored = sum; });
}

// ---------------------------------------------------------------- reading

template <typename Shape>
__device__ void SaveRows(const TaylorStep& s, const Reading& reading,
                         const RowSums<Shape::kTiles>& sums) {
  const int t = LaneIndex() % 4, column = Shape::FirstColumn() + 2 * t;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = Shape::FirstRow() + LaneIndex() / 4 + 8 * half;
    if (r >= reading.block.n_rows) continue;
    float* slot = reading.SlotOf(s, r);
#pragma unroll
    for (int i = 0; i < Shape::kTiles; ++i) {
      *reinterpret_cast<FloatPair*>(slot + column + 8 * i) = {sums.x[i][2 * half],
                                                              sums.x[i][2 * half + 1]};
    }
    if (column == 0) slot[s.n_columns] = sums.weights[2 * half];
  }
}

// Queries of a block's rows, followed by their first half again, so that a feature's factors never
// wrap around; 0 beyond n_rows.
template <typename Shape>
struct QueryRows {
  // Rows of a quarter warp lie in different banks.
  static constexpr int kStride = (Shape::kDim * 3 / 2 + 31) / 32 * 32 + 8;
  static constexpr int kNumbers = Shape::kRows * kStride;

  __device__ static void Load(const TaylorStep& s, const Reading& reading, float* to) {
    constexpr int kWidth = Shape::kDim * 3 / 2;
    for (int i = Tid(); i < Shape::kRows * kWidth; i += Shape::kThreads) {
      const int r = i / kWidth, j = i % kWidth;
      to[r * kStride + j] =
          r < reading.block.n_rows ? reading.QueryOf(s, r)[j % Shape::kDim] : 0.0f;
    }
  }
  // Returns features f + 2 t and f + 2 t + 1 of a row; f is a multiple of 8, so that all eight have
  // the same turn.
  __device__ static __forceinline__ SplitPair FeaturesOf(const float* row, int f, int n_features) {
    const int t = LaneIndex() % 4;
    if (f >= n_features - 1) return {f == n_features - 1 && t == 0 ? 0x3f80u : 0u, 0};
    const int turn = f / Shape::kDim - 1, j = f % Shape::kDim + 2 * t;
    if (turn < 0) return Split(row[j], row[j + 1]);
    return Split(row[j] * row[j + turn], row[j + 1] * row[j + 1 + turn]);
  }
};

// Adds A b to sums, where b is 16 rows of a panel in fp32, `stride` apart; `b` points at the lane's
// first column.
template <int kStride, int kTiles>
__device__ __forceinline__ void AddState(const SplitTile& a, const float* b,
                                         float (&sums)[kTiles][4]) {
  const float* rows = b + LaneIndex() % 4 * 2 * kStride;
  constexpr int kTogether = kTiles < 2 ? 1 : 2;
#pragma unroll
  for (int i = 0; i < kTiles; i += kTogether) {
    SplitPair top[kTogether], bottom[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const float* at = rows + 8 * (i + j);
      top[j] = Split(at[0], at[kStride]);
      bottom[j] = Split(at[8 * kStride], at[9 * kStride]);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      MultiplyTiles(sums[i + j], a.major, top[j].major, bottom[j].major);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      MultiplyTiles(sums[i + j], a.major, top[j].minor, bottom[j].minor);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      MultiplyTiles(sums[i + j], a.minor, top[j].major, bottom[j].major);
    }
  }
}

template <typename Shape>
struct StatePanels {
  static constexpr int kStride = Shape::kDim + 4;  // rows 2 t apart by 8 banks
  static constexpr int kWeights = kDepth * kStride;
  static constexpr int kNumbers = kWeights + kDepth;
  static constexpr int64_t kBytes =
      (QueryRows<Shape>::kNumbers + 2 * kNumbers) * static_cast<int64_t>(sizeof(float));
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) ReadStateTilesKernel(TaylorReadArgs a) {
  if (!HasPiece(a)) return;
  LK_DYNAMIC_SHARED(float, queries);
  using Panels = StatePanels<Shape>;
  float* const panels = queries + QueryRows<Shape>::kNumbers;
  const TaylorStep& s = a.step;
  const Reading reading(a);
  const int begin = reading.piece.begin, end = reading.piece.end;
  const auto n_features = static_cast<int>(s.n_features);
  const float* head = StateOf(s, reading.sequence, reading.kv_head);
  const auto begin_panel = [&](int first) {
    float* to = panels + (first - begin) / kDepth % 2 * Panels::kNumbers;
    BeginStatePanel(s, head, first, end, 0, Shape::kDim, to, Panels::kStride,
                    to + Panels::kWeights);
  };
  begin_panel(begin);
  QueryRows<Shape>::Load(s, reading, queries);
  const int g = LaneIndex() / 4, t = LaneIndex() % 4;
  const float* row = queries + (Shape::FirstRow() + g) * QueryRows<Shape>::kStride;
  constexpr int kSlice = TaylorSliceFeatures(Shape::kDim);
  RowSums<Shape::kTiles> sums, slice;
  for (int first = begin; first < end; first += kDepth) {
    WaitCopies<0>();
    __syncthreads();  // the panel is here, and the one before has been read by all
    if (first + kDepth < end) begin_panel(first + kDepth);
    const float* panel = panels + (first - begin) / kDepth % 2 * Panels::kNumbers;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      SplitTile tile;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile.Set(i, QueryRows<Shape>::FeaturesOf(row + i % 2 * 8 * QueryRows<Shape>::kStride,
                                                 first + k + i / 2 * 8, n_features));
      }
      AddState<Panels::kStride>(tile, panel + k * Panels::kStride + Shape::FirstColumn() + g,
                                slice.x);
      if (Shape::FirstColumn() > 0) continue;
      const float* w = panel + Panels::kWeights + k + 2 * t;
      const SplitPair top = g == 0 ? Split(w[0], w[1]) : SplitPair{0, 0};
      const SplitPair bottom = g == 0 ? Split(w[8], w[9]) : SplitPair{0, 0};
      MultiplyTiles(slice.weights, tile.major, top.major, bottom.major);
      MultiplyTiles(slice.weights, tile.major, top.minor, bottom.minor);
      MultiplyTiles(slice.weights, tile.minor, top.major, bottom.major);
    }
    if ((first + kDepth) % kSlice != 0 && first + kDepth < end) continue;
    sums.Add(slice);
    slice = {};
  }
  SaveRows<Shape>(s, reading, sums);
}

// Queries in two parts, major and minor.
template <typename Shape>
struct QueryPlanes {
  static constexpr int kStride = Shape::kDim + 8;
  static constexpr int kMinor = Shape::kRows * kStride;
  static constexpr int kNumbers = 2 * kMinor;

  __device__ static void Load(const TaylorStep& s, const Reading& reading, uint16_t* to) {
    constexpr int kPairs = Shape::kDim / 2;
    for (int i = Tid(); i < Shape::kRows * kPairs; i += Shape::kThreads) {
      const int r = i / kPairs, j = i % kPairs * 2;
      SplitPair pair{0, 0};
      if (r < reading.block.n_rows) {
        const float* q = reading.QueryOf(s, r) + j;
        pair = Split(q[0], q[1]);
      }
      *reinterpret_cast<uint32_t*>(to + r * kStride + j) = pair.major;
      *reinterpret_cast<uint32_t*>(to + kMinor + r * kStride + j) = pair.minor;
    }
  }
};

// Computes the scores [16, 64] of a warp's rows; `queries` points at the first of them.
template <typename Shape>
__device__ __forceinline__ void Score(const uint16_t* queries, const uint16_t* keys,
                                      float (&scores)[kPage / 8][4]) {
  constexpr int kStride = PagePlanes<Shape::kDim>::kKeyStride;
  const uint16_t* query =
      queries + LaneIndex() % 16 * QueryPlanes<Shape>::kStride + LaneIndex() / 16 * 8;
  const uint16_t* key = keys + LaneIndex() % 16 * kStride + LaneIndex() / 16 * 8;
#pragma unroll
  for (auto& tile : scores) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
  for (int k = 0; k < Shape::kDim; k += 16) {
    uint32_t major[4], minor[4];
    LoadTiles(major, query + k);
    LoadTiles(minor, query + QueryPlanes<Shape>::kMinor + k);
#pragma unroll
    for (int i = 0; i < kPage / 8; i += 2) {
      uint32_t b[4];
      LoadTilesTransposed(b, key + k * kStride + 8 * i);
      MultiplyTiles(scores[i], major, b[0], b[1]);
      MultiplyTiles(scores[i + 1], major, b[2], b[3]);
      MultiplyTiles(scores[i], minor, b[0], b[1]);
      MultiplyTiles(scores[i + 1], minor, b[2], b[3]);
    }
  }
}

// Turns scores into weights of the tokens that a row sees, n_seen[half] of the page, and adds the
// lane's weights to `sums`.
__device__ __forceinline__ void Weigh(const int64_t (&n_seen)[2], float (&scores)[kPage / 8][4],
                                      float (&sums)[2]) {
#pragma unroll
  for (int i = 0; i < kPage / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int token = 8 * i + LaneIndex() % 4 * 2 + j % 2;
      const float x = scores[i][j];
      scores[i][j] = token < n_seen[j / 2] ? fmaf(x, fmaf(0.5f, x, 1.0f), 1.0f) : 0.0f;
      sums[j / 2] += scores[i][j];
    }
  }
}

template <typename Shape>
struct PagePanels {
  static constexpr int kPages = Shape::kDim > 96 ? 1 : 2;  // two pages would need more than 99 KiB
  static constexpr int64_t kBytes =
      (QueryPlanes<Shape>::kNumbers + kPages * PagePlanes<Shape::kDim>::kNumbers) *
      static_cast<int64_t>(sizeof(uint16_t));
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) ReadPagesTilesKernel(TaylorReadArgs a) {
  if (!HasPiece(a)) return;
  LK_DYNAMIC_SHARED(uint16_t, queries);
  using Planes = PagePlanes<Shape::kDim>;
  constexpr int kPages = PagePanels<Shape>::kPages;
  uint16_t* const pages = queries + QueryPlanes<Shape>::kNumbers;
  const TaylorStep& s = a.step;
  const Reading reading(a);
  const int begin = reading.piece.begin, end = reading.piece.end, n_rows = reading.block.n_rows;
  const int64_t n_tokens = reading.PositionOf(n_rows - 1) + 1;  // tokens that the last row sees
  const auto begin_page = [&](int64_t page) {
    const int64_t left = n_tokens - page * kPage;
    BeginPage<Shape>(TileOf<uint16_t>(s, reading.sequence, page, reading.kv_head),
                     static_cast<int>(left < kPage ? left : kPage),
                     pages + (page - begin) % kPages * Planes::kNumbers);
    CommitCopies();
  };
  begin_page(begin);
  QueryPlanes<Shape>::Load(s, reading, queries);
  int64_t n_seen[2];  // visible tokens from page `begin` on
  for (int half = 0; half < 2; ++half) {
    const int r = Shape::FirstRow() + LaneIndex() / 4 + 8 * half;
    n_seen[half] = reading.PositionOf(r < n_rows ? r : n_rows - 1) + 1 - int64_t{begin} * kPage;
  }
  RowSums<Shape::kTiles> sums, span;
  float span_weights[2] = {};
  for (int page = begin; page < end; ++page) {
    WaitCopies<0>();
    __syncthreads();  // the page is here, and the one before has been read by all
    if (kPages > 1 && page + 1 < end) begin_page(page + 1);
    const uint16_t* keys = pages + (page - begin) % kPages * Planes::kNumbers;
    float scores[kPage / 8][4];
    Score<Shape>(queries + Shape::FirstRow() * QueryPlanes<Shape>::kStride, keys, scores);
    Weigh(n_seen, scores, span_weights);
    n_seen[0] -= kPage;
    n_seen[1] -= kPage;
    const uint16_t* values = keys + Planes::kValues + Shape::FirstColumn();
#pragma unroll
    for (int k = 0; k < kPage / 16; ++k) {
      SplitTile tile;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pairs)[4] = scores[2 * k + i / 2];
        tile.Set(i, Split(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]));
      }
      AddValues(tile, values + 16 * k * Planes::kValueStride, Planes::kValueStride, span);
    }
    if (kPages == 1 && page + 1 < end) {
      __syncthreads();  // all have read the page
      begin_page(page + 1);
    }
    if ((page + 1) % kTaylorSpanPages != 0 && page + 1 < end) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& sum = span_weights[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      span.weights[2 * half] = sum;
      sum = 0;
    }
    sums.Add(span);
    span = {};
  }
  SaveRows<Shape>(s, reading, sums);
}

// ---------------------------------------------------------------- launching

// Calls f<kHeadDim>() for the step's head dimension, which is one of TaylorHasTiles.
template <typename F>
void WithHeadDim(const TaylorStep& s, F f) {
  WithConstant<32, 64, 96, 128>(s.head_dim, f);
}

// Calls f<Shape>() for blocks of at most max_rows.
template <typename F>
void WithShape(const TaylorReadArgs& args, F f) {
  WithHeadDim(args.step, [&]<int kHeadDim>() {
    if (args.max_rows == kTaylorFewRows) return f.template operator()<Shape<kHeadDim, 1, 2>>();
    f.template operator()<Shape<kHeadDim, 4, 1>>();
  });
}

}  // namespace

void TaylorFoldWithTiles(Device& device, const TaylorFoldArgs& args) {
  WithHeadDim(args.step, [&]<int kHeadDim>() {
    using S = Shape<kHeadDim, 4, 1>;
    const int64_t n_tiles = (args.step.n_features + S::kRows - 1) / S::kRows;
    Launch(device, FoldTilesKernel<S>,
           {.blocks_x = args.n_folds * n_tiles,
            .blocks_y = args.step.n_kv_heads,
            .threads = S::kThreads,
            .shared_bytes =
                2 * PagePlanes<kHeadDim>::kNumbers * static_cast<int64_t>(sizeof(uint16_t))},
           args);
  });
}

void TaylorReadStateWithTiles(Device& device, const TaylorReadArgs& args) {
  WithShape(args, [&]<typename S>() {
    Launch(device, ReadStateTilesKernel<S>,
           {.blocks_x = args.n_pieces,
            .blocks_y = args.step.n_kv_heads,
            .threads = S::kThreads,
            .shared_bytes = StatePanels<S>::kBytes},
           args);
  });
}

void TaylorReadPagesWithTiles(Device& device, const TaylorReadArgs& args) {
  WithShape(args, [&]<typename S>() {
    Launch(device, ReadPagesTilesKernel<S>,
           {.blocks_x = args.n_pieces,
            .blocks_y = args.step.n_kv_heads,
            .threads = S::kThreads,
            .shared_bytes = PagePanels<S>::kBytes},
           args);
  });
}

}  // namespace lowkey
