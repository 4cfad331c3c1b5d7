// Exact attention by tensor cores, after FlashAttention-2 (Dao 2023, algorithm 1). A block has a
// tile of query rows and reads pages of keys and values one after another; the next page is copied
// while a page is computed. Of a prompt's rows a warp has 32; scores, weights and sums stay in
// registers. The rows of a token or two are shared by the warps of a block.

#include "engine/kernels/cuda/attention/tiles.h"
#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

template <typename B>
__global__ void __launch_bounds__(B::kThreads) AttendKernel(AttendArgs a) {
  LK_DYNAMIC_SHARED(uint16_t, queries);
  uint16_t* const pages = queries + B::kQueryBytes / sizeof(uint16_t);
  const RowTileTask task = a.tasks[blockIdx.x];
  if (task.n_rows == 0) return;
  tiles::LoadPage<B>(a, task, task.begin_page, pages);
  CommitCopies();
  tiles::LoadQueries<B>(a, task, queries);
  tiles::WarpRows<B> rows;
  tiles::Begin(a, task, rows);
  for (int page = task.begin_page; page < task.end_page; ++page) {
    const uint16_t* here = pages + (page - task.begin_page) % 2 * 2 * B::kPlane;
    WaitCopies<0>();
    __syncthreads();  // the page is here, and all have read the page before
    if (page + 1 < task.end_page) {
      tiles::LoadPage<B>(a, task, page + 1,
                         pages + (page + 1 - task.begin_page) % 2 * 2 * B::kPlane);
    }
    CommitCopies();
    tiles::AddPage(a, task, page, queries, here, rows);
  }
  tiles::Finish(a, task, rows);
}

template <typename B>
void LaunchTile(Device& device, const AttendArgs& args) {
  constexpr int64_t kSharedBytes = B::kQueryBytes + 2 * B::kPageBytes;
  if (kSharedBytes > device.most_shared_bytes()) {  // one page at a time
    return AttendClosedWithTensorTiles(device, args);
  }
  Launch(device, AttendKernel<B>,
         {.blocks_x = args.n_tasks,
          .blocks_y = args.n_kv_heads,
          .threads = B::kThreads,
          .shared_bytes = kSharedBytes},
         args);
}

}  // namespace

void AttendWithTensorTiles(Device& device, const AttendArgs& args) {
  tiles::WithHeadDim(args.head_dim, [&]<int kHeadDim>() {
    if (args.tile == RowTile::kFew) {
      return LaunchTile<tiles::SharedRowsBlock<kHeadDim>>(device, args);
    }
    LaunchTile<tiles::Block<kHeadDim, 4, 2>>(device, args);
  });
}

}  // namespace lowkey
