// Exact attention in fp32, for caches in fp32 and head dimensions that tensor cores do not take. A
// block has 16 rows and reads 32 keys and values at a time. A warp has 4 of the rows; a lane
// computes the scores of one key, then some columns of the rows' sums.

#include <algorithm>

#include "engine/kernels/cuda/attention/closed_pages.h"
#include "engine/kernels/cuda/attention/rows.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kThreads = 128;
constexpr int kKeys = kWarp;
constexpr int kWarpRows = 4;
constexpr int kRows = kThreads / kWarp * kWarpRows;
constexpr int kPageTiles = kPageTokensInt / kKeys;

struct alignas(16) FloatQuad {
  float x[4];
};

// Shared memory holds queries [warp][head_dim][4 rows], weights [warp][32 keys][4 rows], and a tile
// [32][head_dim + 1] of keys, then of values.
__host__ __device__ inline int64_t SharedFloats(int64_t head_dim) {
  return kRows * head_dim + kRows * kKeys + kKeys * (head_dim + 1);
}

// The rows of a warp. A lane has columns lane + 32 i of the sums over values, and the weights of
// its keys of the sums of weights.
template <int kColumns>
struct WarpRows {
  float out[kWarpRows][kColumns];
  float max[kWarpRows], sum[kWarpRows];

  __device__ void Restart() {
    for (int r = 0; r < kWarpRows; ++r) {
      max[r] = NoScore();
      sum[r] = 0;
      for (int i = 0; i < kColumns; ++i) out[r][i] = 0;
    }
  }
};

// Loads the tile's scaled queries, zeros beyond its rows.
__device__ inline void LoadQueries(const AttendArgs& a, const RowTileTask& task, float* queries) {
  const auto head_dim = static_cast<int>(a.head_dim);
  const float scale = QueryScale(head_dim);
  for (int row = threadIdx.x / kWarp; row < kRows; row += kThreads / kWarp) {
    float* to = queries + row / kWarpRows * kWarpRows * head_dim + row % kWarpRows;
    const float* q = nullptr;
    if (row < task.n_rows) q = QueryOf(a, PlaceOf(task, a.group, row), blockIdx.y);
    for (int j = threadIdx.x % kWarp; j < head_dim; j += kWarp) {
      to[j * kWarpRows] = q == nullptr ? 0.0f : q[j] * scale;
    }
  }
}

// Loads rows [first, first + 32) of a plane of keys or values; those from n_cached on become 0.
template <typename T>
__device__ void LoadTile(const T* from, int n_cached, int head_dim, float* tile) {
  constexpr int kVector = 16 / sizeof(T);
  struct alignas(16) Vector {
    T x[kVector];
  };
  const int n = kKeys * head_dim;
  if (head_dim % kVector == 0) {
    for (int i = threadIdx.x * kVector; i < n; i += kThreads * kVector) {
      const int token = i / head_dim;
      const Vector x = *reinterpret_cast<const Vector*>(from + i);
      for (int j = 0; j < kVector; ++j) {
        tile[i + token + j] = token < n_cached ? ToFloat(x.x[j]) : 0.0f;
      }
    }
  } else {
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const int token = i / head_dim;
      tile[i + token] = token < n_cached ? ToFloat(from[i]) : 0.0f;
    }
  }
}

enum class Plane { kKeys, kValues };

// Loads rows from `first` on of a closed page.
__device__ inline void LoadClosedTile(const ClosedTile<const uint8_t>& closed, int64_t bits,
                                      Plane plane, int first, int head_dim, float* tile) {
  const int n_groups = (head_dim + kClosedGroup - 1) / kClosedGroup;
  for (int i = threadIdx.x; i < kKeys * head_dim; i += kThreads) {
    const int row = i / head_dim, column = i % head_dim, token = first + row;
    const int64_t at = int64_t{token} * head_dim + column;
    const bool is_key = plane == Plane::kKeys;
    const float code = CodeAt(is_key ? closed.keys : closed.values, at, bits);
    const uint32_t numbers = is_key
                                 ? closed.key_numbers[token / kClosedGroup * head_dim + column]
                                 : closed.value_numbers[token * n_groups + column / kClosedGroup];
    tile[i + row] = Unpacked(numbers).Number(code);
  }
}

// Loads the keys or values of the 32 tokens from `position` on.
template <typename T>
__device__ inline void Load(const AttendArgs& a, const RowTileTask& task, int position, Plane plane,
                            float* tile) {
  const auto head_dim = static_cast<int>(a.head_dim);
  const int page = position / kPageTokensInt, first = position % kPageTokensInt;
  if (a.closed_bits > 0 && page < OwnPage(a, task)) {
    const uint8_t* closed = ClosedTileOf(a, task, page, blockIdx.y);
    LoadClosedTile(ViewClosed(closed, a.head_dim, a.closed_bits), a.closed_bits, plane, first,
                   head_dim, tile);
    return;
  }
  const T* keys = KeysOf<T>(a, a.pages[task.pages + page], blockIdx.y);
  const int row = plane == Plane::kKeys ? first : kPageTokensInt + first;
  LoadTile(keys + row * head_dim, task.end_position - position, head_dim, tile);
}

// Returns the scores of the lane's key against the warp's rows.
__device__ inline FloatQuad Score(const float* queries, const float* tile, int head_dim) {
  const float* key = tile + threadIdx.x % kWarp * (head_dim + 1);
  FloatQuad scores = {};
  for (int j = 0; j < head_dim; ++j) {
    const FloatQuad q = *reinterpret_cast<const FloatQuad*>(queries + j * kWarpRows);
    for (int r = 0; r < kWarpRows; ++r) scores.x[r] = fmaf(q.x[r], key[j], scores.x[r]);
  }
  return scores;
}

// Turns scores into weights, and rescales the rows' sums to their new maximum.
template <int kColumns>
__device__ void Weigh(WarpRows<kColumns>& rows, FloatQuad& scores) {
  for (int r = 0; r < kWarpRows; ++r) {
    const float max = fmaxf(rows.max[r], WarpMax(scores.x[r]));
    const float base = BaseOf(max), factor = Exp2(rows.max[r] - base);
    rows.max[r] = max;
    scores.x[r] = Exp2(scores.x[r] - base);
    rows.sum[r] = fmaf(rows.sum[r], factor, scores.x[r]);
    for (int i = 0; i < kColumns; ++i) rows.out[r][i] *= factor;
  }
}

// out += weights V.
template <int kColumns>
__device__ void AddValues(const float* weights, const float* tile, int head_dim,
                          WarpRows<kColumns>& rows) {
  const int lane = threadIdx.x % kWarp;
  for (int key = 0; key < kKeys; ++key) {
    const FloatQuad w = *reinterpret_cast<const FloatQuad*>(weights + key * kWarpRows);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i * kWarp >= head_dim) break;
      const int column = lane + i * kWarp;
      const float value = column < head_dim ? tile[key * (head_dim + 1) + column] : 0.0f;
      for (int r = 0; r < kWarpRows; ++r) rows.out[r][i] = fmaf(w.x[r], value, rows.out[r][i]);
    }
  }
}

enum class Last { kNo, kYes };

// Folds the span that ends into earlier spans, whose sums wait in the output's place.
template <int kColumns>
__device__ void Fold(const AttendArgs& a, const RowTileTask& task, Last last,
                     WarpRows<kColumns>& rows, RowState* folded) {
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * kWarpRows;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const RowFold fold = FoldRow(folded[r], {rows.max[r], WarpSum(rows.sum[r])});
    folded[r] = fold.joined;
    if (first + r >= task.n_rows) continue;
    const float scale = 1.0f / fold.joined.sum;
    const int64_t at = OutputAt(a, PlaceOf(task, a.group, first + r), blockIdx.y);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + i * kWarp;
      if (column >= a.head_dim) break;
      const float before = fold.before_is_empty ? 0.0f : a.out[at + column];
      const float x = fold.Join(before, rows.out[r][i]);
      if (last == Last::kYes && a.rounded != nullptr) {
        a.rounded[at + column] = FloatToBFloat16(x * scale);
      } else {
        a.out[at + column] = last == Last::kYes ? x * scale : x;
      }
    }
  }
}

template <int kColumns>
__device__ void SavePart(const AttendArgs& a, const RowTileTask& task,
                         const WarpRows<kColumns>& rows) {
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * kWarpRows;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const float sum = WarpSum(rows.sum[r]);
    if (first + r >= task.n_rows) continue;
    const int64_t part = PartOf(a, int64_t{task.part} + first + r, blockIdx.y);
    if (lane == 0) {
      a.part_states[2 * part] = rows.max[r];
      a.part_states[2 * part + 1] = sum;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = lane + i * kWarp;
      if (column < a.head_dim) a.parts[part * a.head_dim + column] = rows.out[r][i];
    }
  }
}

// The positions that each of the warp's rows sees.
struct SeenByRows {
  int first[kWarpRows], last[kWarpRows];
};

__device__ inline SeenByRows SeenBy(const AttendArgs& a, const RowTileTask& task) {
  SeenByRows seen;
  for (int r = 0; r < kWarpRows; ++r) {
    const int row =
        std::min(static_cast<int>(threadIdx.x) / kWarp * kWarpRows + r, task.n_rows - 1);
    seen.last[r] = PlaceOf(task, a.group, row).position;
    seen.first[r] = a.n_before < seen.last[r] ? seen.last[r] - static_cast<int>(a.n_before) : 0;
  }
  return seen;
}

template <typename T, int kColumns>
__global__ void __launch_bounds__(kThreads) AttendKernel(AttendArgs a) {
  LK_DYNAMIC_SHARED(float, shared);
  const auto head_dim = static_cast<int>(a.head_dim);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const queries = shared + warp * kWarpRows * head_dim;
  float* const weights = shared + kRows * head_dim + warp * kKeys * kWarpRows;
  float* const tile = shared + kRows * head_dim + kRows * kKeys;
  const RowTileTask task = a.tasks[blockIdx.x];
  if (task.n_rows == 0) return;
  LoadQueries(a, task, shared);
  WarpRows<kColumns> rows;
  rows.Restart();
  RowState folded[kWarpRows];
  for (RowState& state : folded) state = {NoScore(), 0};
  const SeenByRows seen = SeenBy(a, task);
  const bool has_rows = warp * kWarpRows < task.n_rows;
  const int first_tile = task.begin_page * (kPageTokensInt / kKeys);
  const int end_tile = task.end_page * (kPageTokensInt / kKeys);
  for (int i = first_tile; i < end_tile; ++i) {
    const int position = i * kKeys;
    __syncthreads();  // all have read the values before
    Load<T>(a, task, position, Plane::kKeys, tile);
    __syncthreads();
    if (has_rows) {
      FloatQuad scores = Score(queries, tile, head_dim);
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const int key = position + lane;
        if (key > seen.last[r] || key < seen.first[r]) scores.x[r] = NoScore();
      }
      Weigh(rows, scores);
      *reinterpret_cast<FloatQuad*>(weights + lane * kWarpRows) = scores;
    }
    __syncthreads();  // all have read the keys
    Load<T>(a, task, position, Plane::kValues, tile);
    __syncthreads();
    if (has_rows) {
      AddValues(weights, tile, head_dim, rows);
      if ((i + 1) % (kPageTiles * task.span_pages) == 0 && i + 1 < end_tile) {
        Fold(a, task, Last::kNo, rows, folded);
        rows.Restart();
      }
    }
  }
  if (!has_rows) return;
  if (task.n_parts > 1) {
    SavePart(a, task, rows);
  } else {
    Fold(a, task, Last::kYes, rows, folded);
  }
}

template <typename T>
void LaunchFor(Device& device, const AttendArgs& args) {
  const LaunchShape shape{
      .blocks_x = args.n_tasks,
      .blocks_y = args.n_kv_heads,
      .threads = kThreads,
      .shared_bytes = SharedFloats(args.head_dim) * static_cast<int64_t>(sizeof(float))};
  if (args.head_dim <= 4 * kWarp) return Launch(device, AttendKernel<T, 4>, shape, args);
  if (args.head_dim <= 8 * kWarp) return Launch(device, AttendKernel<T, 8>, shape, args);
  Launch(device, AttendKernel<T, 16>, shape, args);
}

}  // namespace

void AttendPlainly(Device& device, const AttendArgs& args) {
  (args.cache_type == StorageType::kFloat32 ? LaunchFor<float> : LaunchFor<uint16_t>)(device, args);
}

}  // namespace lowkey
