#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_TILES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_TILES_H_

// The rows of a warp, and attention of these rows to pages of keys and values in shared memory, by
// tensor cores. Included by .cu files.

#include <algorithm>

#include "engine/kernels/cuda/attention/rows.h"
#include "engine/kernels/cuda/grid/mma.h"

namespace lowkey::tiles {
constexpr int kKeys = kPageTokensInt;

struct alignas(8) FloatPair {
  float x, y;
};

// A block whose warps have rows of their own.
template <int kHeadDim, int kWarps, int kTiles>
struct Block {
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = 16 * kTiles * kWarps;
  // A stride of an odd number of 16 bytes puts eight rows of a matrix into different banks.
  static constexpr int kStride = kHeadDim + 8;
  static constexpr int kPlane = kKeys * kStride;  // numbers of a page's keys, or values
  // Bytes of shared memory before the pages.
  static constexpr int64_t kQueryBytes = kRows * kStride * static_cast<int64_t>(sizeof(uint16_t));
  // Bytes of the keys and values of one page.
  static constexpr int64_t kPageBytes = 2 * kPlane * static_cast<int64_t>(sizeof(uint16_t));
  static constexpr int kRowTiles = kTiles;
  static constexpr int kDim = kHeadDim;
  static constexpr int kGroups = kHeadDim / 16;  // groups of 16 columns that a warp adds up
  static constexpr bool kSharesRows = false;

  // Returns the block's KV head.
  __device__ static int KvHead() { return static_cast<int>(blockIdx.y); }
  // Returns which rows of the block are the warp's: the first, the second and so on.
  __device__ static int RowsIndex() { return static_cast<int>(threadIdx.x) / kWarp; }
  // Returns the first column of one of the warp's groups; kDim or more: the warp has none there.
  __device__ static int ColumnOf(int group) { return 16 * group; }
  // Returns the place of number `column` of row `row` in n_rows rows of shared memory. Eight
  // numbers from a multiple of 8 on stay together.
  __device__ static int Place(int /*n_rows*/, int row, int column) {
    return row * kStride + column;
  }
};

// A block of four warps that share 16 rows, where rows are few and reading the cache takes the
// time. A warp computes scores of 16 keys of a page, and adds up every fourth group of 16 columns.
// All warps compute all weights, so that a row has the bits that Block gives it.
template <int kHeadDim>
struct SharedRowsBlock : Block<kHeadDim, 1, 1> {
  using Base = Block<kHeadDim, 1, 1>;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kGroups = (kHeadDim / 16 + kWarps - 1) / kWarps;
  static constexpr bool kSharesRows = true;
  static constexpr int kScoreStride = kKeys + 8;  // four rows of pairs are in different banks
  static constexpr int64_t kQueryBytes =
      Base::kQueryBytes + Base::kRows * kScoreStride * static_cast<int64_t>(sizeof(float));

  __device__ static int RowsIndex() { return 0; }
  __device__ static int ColumnOf(int group) { return 16 * (Base::RowsIndex() + kWarps * group); }
  // Returns the room for the rows' scores of a page, [16, kScoreStride], behind the queries.
  __device__ static float* ScoresOf(uint16_t* queries) {
    return reinterpret_cast<float*>(queries + Base::kRows * Base::kStride);
  }
};

// Calls f<kHeadDim>() for a head dimension of HasTensorTiles.
template <typename F>
void WithHeadDim(int64_t head_dim, F f) {
  WithConstant<32, 64, 80, 96, 128>(head_dim, f);
}

// The range of positions of the warp's rows.
struct WarpPositions {
  bool has_rows;
  int first, last;

  __device__ bool Sees(int page, int64_t n_before) const {
    return has_rows && page * kKeys <= last && page * kKeys + kKeys > first - n_before;
  }
  __device__ bool SeesInPart(int page, int64_t n_before) const {
    return page * kKeys + kKeys - 1 > first || page * kKeys < last - n_before;
  }
};

// The rows of a warp. A lane has rows lane / 4 and lane / 4 + 8 (half 0 and 1) of each tile of 16.
template <typename B>
struct WarpRows {
  float out[B::kRowTiles][2 * B::kGroups][4];
  float max[B::kRowTiles][2];
  float sum[B::kRowTiles][2];        // the sum over the lane's columns
  RowState folded[B::kRowTiles][2];  // earlier spans
  WarpPositions positions;
};

template <typename B>
__device__ __forceinline__ int RowOf(int tile, int half) {
  const int lane = threadIdx.x % kWarp;
  return (B::RowsIndex() * B::kRowTiles + tile) * 16 + half * 8 + lane / 4;
}

// Calls f(column, pair) for the pairs of neighboring sums that a lane has of a row; the pair's
// columns are those of the first lane plus 2 (lane % 4).
template <typename B, typename F>
__device__ __forceinline__ void WithSums(const WarpRows<B>& rows, int tile, int half, F f) {
#pragma unroll
  for (int i = 0; i < 2 * B::kGroups; ++i) {
    const int column = B::ColumnOf(i / 2) + i % 2 * 8;
    if (column >= B::kDim) continue;
    f(column, FloatPair{rows.out[tile][i][2 * half], rows.out[tile][i][2 * half + 1]});
  }
}

template <typename B>
__device__ __forceinline__ void Restart(WarpRows<B>& rows) {
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.max[tile][half] = NoScore();
      rows.sum[tile][half] = 0;
    }
#pragma unroll
    for (int i = 0; i < 2 * B::kGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) rows.out[tile][i][j] = 0;
    }
  }
}

// Loads the tile's scaled queries, zeros beyond its rows.
template <typename B>
__device__ __forceinline__ void LoadQueries(const AttendArgs& a, const RowTileTask& task,
                                            uint16_t* queries) {
  const float scale = QueryScale(B::kDim);
  constexpr int kPairs = B::kDim / 2;
#pragma unroll 8
  for (int i = threadIdx.x; i < B::kRows * kPairs; i += B::kThreads) {
    const int row = i / kPairs, column = 2 * (i % kPairs);
    // Every lane loads, so that the next loads need not wait for this load.
    const RowPlace place = PlaceOf(task, a.group, std::min(row, task.n_rows - 1));
    const float* q = QueryOf(a, place, B::KvHead()) + column;
    const uint32_t packed = PackBFloat16(q[0] * scale, q[1] * scale);
    *reinterpret_cast<uint32_t*>(queries + B::Place(B::kRows, row, column)) =
        row < task.n_rows ? packed : 0;
  }
}

// Begins to copy a page's keys and values to `to`. Values of tokens that are not cached yet become
// 0, because the memory there may hold NaN.
template <typename B>
__device__ __forceinline__ void LoadPage(const AttendArgs& a, const RowTileTask& task, int page,
                                         uint16_t* to) {
  constexpr int kChunks = B::kDim / 8;  // pieces of 16 bytes
  const auto* keys = KeysOf<uint16_t>(a, a.pages[task.pages + page], B::KvHead());
  const auto* values = keys + kKeys * B::kDim;
  const int n_cached = task.end_position - page * kKeys;
#pragma unroll 4
  for (int i = threadIdx.x; i < kKeys * kChunks; i += B::kThreads) {
    const int token = i / kChunks, at = B::Place(kKeys, token, i % kChunks * 8);
    CopyAsync16(to + at, keys + i * 8);
    if (token < n_cached) {
      CopyAsync16(to + B::kPlane + at, values + i * 8);
    } else {
      auto* zeros = reinterpret_cast<uint32_t*>(to + B::kPlane + at);
      zeros[0] = zeros[1] = zeros[2] = zeros[3] = 0;
    }
  }
}

// scores [.., 16, 64] = Q K^T.
template <typename B>
__device__ __forceinline__ void Score(const uint16_t* queries, const uint16_t* keys,
                                      float (&scores)[B::kRowTiles][kKeys / 8][4]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[tile][i][j] = 0;
    }
  }
  const uint16_t* query =
      queries + (warp * B::kRowTiles * 16 + lane % 16) * B::kStride + lane / 16 * 8;
  const uint16_t* key = keys + (lane / 16 * 8 + lane % 8) * B::kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < B::kDim; k += 16) {
    uint32_t q[B::kRowTiles][4];
#pragma unroll
    for (int tile = 0; tile < B::kRowTiles; ++tile) {
      LoadTiles(q[tile], query + tile * 16 * B::kStride + k);
    }
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      uint32_t b[4];
      LoadTiles(b, key + i * 16 * B::kStride + k);
#pragma unroll
      for (int tile = 0; tile < B::kRowTiles; ++tile) {
        MultiplyTiles(scores[tile][2 * i], q[tile], b[0], b[1]);
        MultiplyTiles(scores[tile][2 * i + 1], q[tile], b[2], b[3]);
      }
    }
  }
}

// Does the same by all warps of a SharedRowsBlock, each for 16 keys. No warp may still read the
// scores of the page before.
template <typename B>
__device__ __forceinline__ void ScoreTogether(uint16_t* queries, const uint16_t* keys,
                                              float (&scores)[1][kKeys / 8][4]) {
  const int lane = threadIdx.x % kWarp, first_key = threadIdx.x / kWarp * 16;
  const uint16_t* query = queries + lane % 16 * B::kStride + lane / 16 * 8;
  const uint16_t* key =
      keys + (first_key + lane / 16 * 8 + lane % 8) * B::kStride + lane / 8 % 2 * 8;
  float own[2][4] = {};
#pragma unroll
  for (int k = 0; k < B::kDim; k += 16) {
    uint32_t q[4], b[4];
    LoadTiles(q, query + k);
    LoadTiles(b, key + k);
    MultiplyTiles(own[0], q, b[0], b[1]);
    MultiplyTiles(own[1], q, b[2], b[3]);
  }
  float* shared = B::ScoresOf(queries) + lane / 4 * B::kScoreStride + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* row = shared + half * 8 * B::kScoreStride;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<FloatPair*>(row + first_key + 8 * i) = {own[i][2 * half],
                                                                own[i][2 * half + 1]};
    }
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* row = shared + half * 8 * B::kScoreStride;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      const auto pair = *reinterpret_cast<const FloatPair*>(row + 8 * i);
      scores[0][i][2 * half] = pair.x;
      scores[0][i][2 * half + 1] = pair.y;
    }
  }
}

template <typename B>
__device__ __forceinline__ void Mask(const AttendArgs& a, const RowTileTask& task, int page,
                                     float (&scores)[B::kRowTiles][kKeys / 8][4]) {
  const int first = page * kKeys + threadIdx.x % 4 * 2;
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = std::min(RowOf<B>(tile, half), task.n_rows - 1);
      const int last_seen = PlaceOf(task, a.group, row).position;
      // 32 bits hold both positions; with 64 bits wide heads spill registers.
      const int first_seen = last_seen - static_cast<int>(a.n_before);
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          const int key = first + 8 * i + j % 2;
          if (key > last_seen || key < first_seen) scores[tile][i][j] = NoScore();
        }
      }
    }
  }
}

// Turns a page's scores into weights, and rescales the rows' sums to their new maximum.
template <typename B>
__device__ __forceinline__ void Weigh(WarpRows<B>& rows,
                                      float (&scores)[B::kRowTiles][kKeys / 8][4]) {
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = rows.max[tile][half];
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
        max = fmaxf(max, fmaxf(scores[tile][i][2 * half], scores[tile][i][2 * half + 1]));
      }
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
      const float base = BaseOf(max), factor = Exp2(rows.max[tile][half] - base);
      rows.max[tile][half] = max;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[tile][i][j] = Exp2(scores[tile][i][j] - base);
          sum += scores[tile][i][j];
        }
      }
      rows.sum[tile][half] = fmaf(rows.sum[tile][half], factor, sum);
#pragma unroll
      for (int i = 0; i < 2 * B::kGroups; ++i) {
        rows.out[tile][i][2 * half] *= factor;
        rows.out[tile][i][2 * half + 1] *= factor;
      }
    }
  }
}

// out += weights V.
template <typename B>
__device__ __forceinline__ void AddValues(const uint16_t* values,
                                          const float (&weights)[B::kRowTiles][kKeys / 8][4],
                                          WarpRows<B>& rows) {
  const int lane = threadIdx.x % kWarp;
  const uint16_t* value = values + lane % 16 * B::kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    uint32_t w[B::kRowTiles][4];
#pragma unroll
    for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pairs)[4] = weights[tile][2 * k + i / 2];
        w[tile][i] = PackBFloat16(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < B::kGroups; ++i) {
      const int column = B::ColumnOf(i);
      if (column >= B::kDim) continue;
      uint32_t b[4];
      LoadTilesTransposed(b, value + k * 16 * B::kStride + column);
#pragma unroll
      for (int tile = 0; tile < B::kRowTiles; ++tile) {
        MultiplyTiles(rows.out[tile][2 * i], w[tile], b[0], b[1]);
        MultiplyTiles(rows.out[tile][2 * i + 1], w[tile], b[2], b[3]);
      }
    }
  }
}

// Returns the row's state since Restart, its sum over all columns.
template <typename B>
__device__ __forceinline__ RowState StateOf(const WarpRows<B>& rows, int tile, int half) {
  float sum = rows.sum[tile][half];
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  return {rows.max[tile][half], sum};
}

enum class Last { kNo, kYes };

// Stores a pair of results at place `at` of the outputs.
__device__ __forceinline__ void StoreResults(const AttendArgs& a, int64_t at, FloatPair x) {
  if (a.rounded != nullptr) {
    *reinterpret_cast<uint32_t*>(a.rounded + at) = PackBFloat16(x.x, x.y);
  } else {
    *reinterpret_cast<FloatPair*>(a.out + at) = x;
  }
}

// Folds the span that ends into earlier spans, whose sums wait in the output's place.
template <typename B, Last kLast>
__device__ __forceinline__ void Fold(const AttendArgs& a, const RowTileTask& task,
                                     WarpRows<B>& rows) {
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowFold fold = FoldRow(rows.folded[tile][half], StateOf(rows, tile, half));
      rows.folded[tile][half] = fold.joined;
      const int row = RowOf<B>(tile, half);
      if (row >= task.n_rows) continue;
      const float scale = 1.0f / fold.joined.sum;
      const int64_t at =
          OutputAt(a, PlaceOf(task, a.group, row), B::KvHead()) + threadIdx.x % 4 * 2;
      WithSums(rows, tile, half, [&](int column, FloatPair x) {
        auto* pair = reinterpret_cast<FloatPair*>(a.out + at + column);
        if (!fold.before_is_empty) {
          const FloatPair before = *pair;
          x = {fold.Join(before.x, x.x), fold.Join(before.y, x.y)};
        }
        if constexpr (kLast == Last::kYes) {
          StoreResults(a, at + column, {x.x * scale, x.y * scale});
        } else {
          *pair = x;
        }
      });
    }
  }
}

template <typename B>
__device__ __forceinline__ void SavePart(const AttendArgs& a, const RowTileTask& task,
                                         const WarpRows<B>& rows) {
#pragma unroll
  for (int tile = 0; tile < B::kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowState state = StateOf(rows, tile, half);
      const int row = RowOf<B>(tile, half);
      if (row >= task.n_rows) continue;
      const int64_t part = PartOf(a, int64_t{task.part} + row, B::KvHead());
      if (B::ColumnOf(0) + threadIdx.x % 4 == 0) {
        a.part_states[2 * part] = state.max;
        a.part_states[2 * part + 1] = state.sum;
      }
      float* to = a.parts + part * B::kDim + threadIdx.x % 4 * 2;
      WithSums(rows, tile, half,
               [&](int column, FloatPair x) { *reinterpret_cast<FloatPair*>(to + column) = x; });
    }
  }
}

// Returns the positions of n_rows rows of the task from `first` on.
__device__ __forceinline__ WarpPositions PositionsOf(const AttendArgs& a, const RowTileTask& task,
                                                     int first, int n_rows) {
  const int end = std::min(task.n_rows, first + n_rows);
  if (first >= end) return {false, 0, 0};
  return {true, PlaceOf(task, a.group, first).position, PlaceOf(task, a.group, end - 1).position};
}

template <typename B>
__device__ __forceinline__ void Begin(const AttendArgs& a, const RowTileTask& task,
                                      WarpRows<B>& rows) {
  for (auto& tile : rows.folded) tile[0] = tile[1] = {NoScore(), 0};
  Restart(rows);
  constexpr int kWarpRows = B::kRowTiles * 16;
  rows.positions = PositionsOf(a, task, B::RowsIndex() * kWarpRows, kWarpRows);
}

// Adds a page, whose keys and values lie at `here`, to the rows that see the page.
//
// A row's sequence of operations is that of the pages that it sees. A page that only other rows of
// the warp see changes nothing: its weights are 0 and factors 1.
template <typename B>
__device__ __forceinline__ void AddPage(const AttendArgs& a, const RowTileTask& task, int page,
                                        uint16_t* queries, const uint16_t* here,
                                        WarpRows<B>& rows) {
  const WarpPositions& positions = rows.positions;
  if (positions.Sees(page, a.n_before)) {
    float scores[B::kRowTiles][kKeys / 8][4];
    if constexpr (B::kSharesRows) {
      ScoreTogether<B>(queries, here, scores);
    } else {
      Score<B>(queries, here, scores);
    }
    if (positions.SeesInPart(page, a.n_before)) Mask<B>(a, task, page, scores);
    Weigh(rows, scores);
    AddValues(here + B::kPlane, scores, rows);
  }
  if ((page + 1) % task.span_pages == 0 && page + 1 < task.end_page && positions.has_rows) {
    Fold<B, Last::kNo>(a, task, rows);
    Restart(rows);
  }
}

// Stores the rows' results after the task's last page.
template <typename B>
__device__ __forceinline__ void Finish(const AttendArgs& a, const RowTileTask& task,
                                       WarpRows<B>& rows) {
  if (!rows.positions.has_rows) return;
  if (task.n_parts > 1) {
    SavePart(a, task, rows);
  } else {
    Fold<B, Last::kYes>(a, task, rows);
  }
}

}  // namespace lowkey::tiles

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_TILES_H_
