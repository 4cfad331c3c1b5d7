// Exact attention of a prompt's rows by warpgroups, for heads of 64 and 128. A block has 128 query
// rows, 16 a warp, and reads pages of keys and values one after another; the next page is copied
// while a page is computed. Scores are products of two tiles; weights go from registers into the
// product with values. Everything between is what tiles.h does, in the same order, so that a row
// has the bits that AttendWithTensorTiles gives it where a warpgroup's products have those of a
// warp's.

#include "engine/kernels/cuda/attention/tiles.h"
#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/cuda/grid/warpgroup.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kWarps = 8;
constexpr int kGroupRows = 64;            // of a warpgroup
constexpr int kTileColumns = 64;          // of a row of a tile
constexpr int64_t kTileAlignment = 1024;  // bytes

// A block whose queries, keys and values lie in tiles of 64 columns (warpgroup.h).
template <int kHeadDim>
struct TiledBlock : tiles::Block<kHeadDim, kWarps, 1> {
  using Base = tiles::Block<kHeadDim, kWarps, 1>;
  static constexpr int kQueries = Base::kRows * kHeadDim;
  static constexpr int kPlane = tiles::kKeys * kHeadDim;  // numbers of a page's keys, or values
  static constexpr int64_t kBytes =
      kTileAlignment + (kQueries + 2 * 2 * kPlane) * static_cast<int64_t>(sizeof(uint16_t));

  // These replace Block's. The heads of a task follow each other, so that the tasks that read most
  // come first.
  __device__ static int KvHead() { return static_cast<int>(blockIdx.x); }
  __device__ static int Place(int n_rows, int row, int column) {
    const int piece = SwizzledPiece(row, column % kTileColumns / 8);
    return (column / kTileColumns * n_rows + row) * kTileColumns + piece * 8 + column % 8;
  }
};

// The rows of a warp, with the sums of their earlier spans in registers: to write them at the end
// of each span and to read them at the next would take longer than a span's products.
template <int kHeadDim>
struct GroupRows : tiles::WarpRows<TiledBlock<kHeadDim>> {
  float before[kHeadDim / 8][4];
};

// Returns the first of the warpgroup's rows.
__device__ inline int FirstGroupRow() {
  return static_cast<int>(threadIdx.x) / (4 * kWarp) * kGroupRows;
}

// scores [64, 64] = Q K^T.
template <int kHeadDim>
__device__ inline void Score(const uint16_t* queries, const uint16_t* keys,
                             float (&scores)[1][tiles::kKeys / 8][4]) {
  auto& sums = reinterpret_cast<float(&)[tiles::kKeys / 2]>(scores);
  const int first_row = FirstGroupRow();
  PinRegisters(sums);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kHeadDim; k += 16) {
    const int tile = k / kTileColumns;
    MultiplyWarpgroup<tiles::kKeys>(
        sums,
        queries + (tile * TiledBlock<kHeadDim>::kRows + first_row) * kTileColumns +
            k % kTileColumns,
        keys + tile * tiles::kKeys * kTileColumns + k % kTileColumns, k > 0);
  }
  CommitProducts();
  WaitProducts<0>();
  PinRegisters(sums);
}

// out += weights V.
template <int kHeadDim>
__device__ inline void AddValues(const uint16_t* values,
                                 const float (&weights)[1][tiles::kKeys / 8][4],
                                 GroupRows<kHeadDim>& rows) {
  auto& sums = reinterpret_cast<float(&)[kHeadDim / 2]>(rows.out);
  uint32_t packed[tiles::kKeys / 16][4];
#pragma unroll
  for (int k = 0; k < tiles::kKeys / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&pairs)[4] = weights[0][2 * k + i / 2];
      packed[k][i] = PackBFloat16(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
    }
  }
  PinRegisters(sums);
#pragma unroll
  for (auto& words : packed) PinRegisters(words);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < tiles::kKeys / 16; ++k) {
    AddWarpgroupTransposed<kHeadDim>(sums, packed[k], values + k * 16 * kTileColumns,
                                     tiles::kKeys * kTileColumns);
  }
  CommitProducts();
  WaitProducts<0>();
  PinRegisters(sums);
}

// Folds the span that ends into earlier spans: `out` becomes the sums over all of them.
template <int kHeadDim>
__device__ inline void FoldSpan(GroupRows<kHeadDim>& rows) {
  using B = TiledBlock<kHeadDim>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const RowFold fold = FoldRow(rows.folded[0][half], tiles::StateOf<B>(rows, 0, half));
    rows.folded[0][half] = fold.joined;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
#pragma unroll
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        rows.out[0][i][j] = fold.Join(rows.before[i][j], rows.out[0][i][j]);
      }
    }
  }
}

// Stores the sums over all spans, divided by the weights' sums.
template <int kHeadDim>
__device__ inline void StoreResults(const AttendArgs& a, const RowTileTask& task,
                                    const GroupRows<kHeadDim>& rows) {
  using B = TiledBlock<kHeadDim>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = tiles::RowOf<B>(0, half);
    if (row >= task.n_rows) continue;
    const float scale = 1.0f / rows.folded[0][half].sum;
    const int64_t at = OutputAt(a, PlaceOf(task, a.group, row), B::KvHead()) + threadIdx.x % 4 * 2;
    tiles::WithSums<B>(rows, 0, half, [&](int column, tiles::FloatPair x) {
      tiles::StoreResults(a, at + column, {x.x * scale, x.y * scale});
    });
  }
}

// Does what tiles::AddPage does, but the four warps of a warpgroup take part in all of its
// products, for `group`, the positions of their rows: a page that a warp's rows do not see changes
// nothing, for its weights are 0 and values are finite.
template <int kHeadDim>
__device__ inline void AddPage(const AttendArgs& a, const RowTileTask& task, int page,
                               const uint16_t* queries, const uint16_t* here,
                               const tiles::WarpPositions& group, GroupRows<kHeadDim>& rows) {
  using B = TiledBlock<kHeadDim>;
  if (group.Sees(page, a.n_before)) {
    float scores[1][tiles::kKeys / 8][4];
    Score<kHeadDim>(queries, here, scores);
    if (group.SeesInPart(page, a.n_before)) tiles::Mask<B>(a, task, page, scores);
    tiles::Weigh<B>(rows, scores);
    AddValues<kHeadDim>(here + B::kPlane, scores, rows);
  }
  if ((page + 1) % task.span_pages == 0 && page + 1 < task.end_page) {
    FoldSpan(rows);
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) rows.before[i][j] = rows.out[0][i][j];
    }
    tiles::Restart<B>(rows);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kWarps* kWarp) AttendKernel(AttendArgs a) {
  using B = TiledBlock<kHeadDim>;
  LK_DYNAMIC_SHARED(unsigned char, bytes);
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  auto* const queries =
      reinterpret_cast<uint16_t*>(bytes + (kTileAlignment - address % kTileAlignment));
  uint16_t* const pages = queries + B::kQueries;
  const RowTileTask task = a.tasks[blockIdx.y];
  if (task.n_rows == 0) return;
  tiles::LoadPage<B>(a, task, task.begin_page, pages);
  CommitCopies();
  tiles::LoadQueries<B>(a, task, queries);
  GroupRows<kHeadDim> rows;
  tiles::Begin<B>(a, task, rows);
  const auto group = tiles::PositionsOf(a, task, FirstGroupRow(), kGroupRows);
  for (int page = task.begin_page; page < task.end_page; ++page) {
    const int stage = (page - task.begin_page) % 2;
    WaitCopies<0>();
    ShowTiles();
    __syncthreads();  // the page is here, and all have read the page before
    if (page + 1 < task.end_page) {
      tiles::LoadPage<B>(a, task, page + 1, pages + (1 - stage) * 2 * B::kPlane);
    }
    CommitCopies();
    AddPage<kHeadDim>(a, task, page, queries, pages + stage * 2 * B::kPlane, group, rows);
  }
  if (!rows.positions.has_rows) return;
  if (task.n_parts > 1) {
    tiles::SavePart<B>(a, task, rows);
  } else {
    FoldSpan(rows);
    StoreResults(a, task, rows);
  }
}

template <int kHeadDim>
void LaunchFor(Device& device, const AttendArgs& args) {
  Launch(device, AttendKernel<kHeadDim>,
         {.blocks_x = args.n_kv_heads,
          .blocks_y = args.n_tasks,
          .threads = TiledBlock<kHeadDim>::kThreads,
          .shared_bytes = TiledBlock<kHeadDim>::kBytes},
         args);
}

}  // namespace

void AttendWithWarpgroups(Device& device, const AttendArgs& args) {
  WithConstant<64, 128>(args.head_dim, [&]<int kHeadDim>() { LaunchFor<kHeadDim>(device, args); });
}

}  // namespace lowkey
