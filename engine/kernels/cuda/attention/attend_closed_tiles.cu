// Exact attention by tensor cores over closed pages, which are widened to bf16 in shared memory,
// and over the rows' own page, which is not closed. The codes of the next page are copied while a
// page is computed.

#include "engine/kernels/cuda/attention/closed_pages.h"
#include "engine/kernels/cuda/attention/tiles.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

struct alignas(16) FourWords {
  uint32_t x[4];
};

// Begins to copy a closed page to `to`.
template <typename B>
__device__ __forceinline__ void LoadClosed(const AttendArgs& a, const RowTileTask& task, int page,
                                           uint8_t* to) {
  const auto n_bytes = static_cast<int>(ClosedTileBytes(B::kDim, a.closed_bits));
  const uint8_t* from = ClosedTileOf(a, task, page, blockIdx.y);
#pragma unroll 4
  for (int i = threadIdx.x * 16; i < n_bytes; i += B::kThreads * 16) CopyAsync16(to + i, from + i);
}

// Widens eight neighboring numbers of a plane to bf16.
template <int kBits>
__device__ __forceinline__ void Widen8(const uint8_t* codes, const ScaleAndMiddle (&numbers)[8],
                                       uint16_t* to) {
  float x[8];
  TakeCodes<kBits>(codes, x);
  FourWords packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    packed.x[i] =
        PackBFloat16(numbers[2 * i].Number(x[2 * i]), numbers[2 * i + 1].Number(x[2 * i + 1]));
  }
  *reinterpret_cast<FourWords*>(to) = packed;
}

// Widens a closed page's keys and values to `page`. A thread has eight columns of some tokens.
template <typename B, int kBits>
__device__ __forceinline__ void Widen(const uint8_t* closed, uint16_t* page) {
  constexpr int kChunks = B::kDim / 8, kTokensAtOnce = B::kThreads / kChunks;
  const int column = threadIdx.x % kChunks * 8, first = threadIdx.x / kChunks;
  if (first >= kTokensAtOnce) return;
  const ClosedTile<const uint8_t> tile = ViewClosed(closed, B::kDim, kBits);
  ScaleAndMiddle numbers[8];
#pragma unroll
  for (int group = 0; group < tiles::kKeys / kClosedGroup; ++group) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      numbers[i] = Unpacked(tile.key_numbers[group * B::kDim + column + i]);
    }
    for (int i = first; i < kClosedGroup; i += kTokensAtOnce) {
      const int token = group * kClosedGroup + i;
      Widen8<kBits>(tile.keys + (token * B::kDim + column) * kBits / 8, numbers,
                    page + token * B::kStride + column);
    }
  }
  constexpr int kGroups = (B::kDim + kClosedGroup - 1) / kClosedGroup;
  for (int token = first; token < tiles::kKeys; token += kTokensAtOnce) {
    const ScaleAndMiddle one =
        Unpacked(tile.value_numbers[token * kGroups + column / kClosedGroup]);
#pragma unroll
    for (int i = 0; i < 8; ++i) numbers[i] = one;
    Widen8<kBits>(tile.values + (token * B::kDim + column) * kBits / 8, numbers,
                  page + B::kPlane + token * B::kStride + column);
  }
}

template <typename B>
__global__ void __launch_bounds__(B::kThreads) AttendClosedKernel(AttendArgs a) {
  LK_DYNAMIC_SHARED(uint16_t, queries);
  uint16_t* const here = queries + B::kQueryBytes / sizeof(uint16_t);
  auto* const closed = reinterpret_cast<uint8_t*>(here + 2 * B::kPlane);
  const RowTileTask task = a.tasks[blockIdx.x];
  if (task.n_rows == 0) return;
  const int own = a.closed_bits == 0 ? 0 : OwnPage(a, task);
  const int end_closed = std::min(own, task.end_page);
  if (task.begin_page < end_closed) LoadClosed<B>(a, task, task.begin_page, closed);
  CommitCopies();
  tiles::LoadQueries<B>(a, task, queries);
  tiles::WarpRows<B> rows;
  tiles::Begin(a, task, rows);
  for (int page = task.begin_page; page < task.end_page; ++page) {
    WaitCopies<0>();
    __syncthreads();  // the codes are here, and the page before has been read by all
    if (page < own) {
      if (a.closed_bits == 8) {
        Widen<B, 8>(closed, here);
      } else {
        Widen<B, 4>(closed, here);
      }
    } else {
      tiles::LoadPage<B>(a, task, page, here);
      CommitCopies();
      WaitCopies<0>();
    }
    __syncthreads();  // the page is here, and its codes have been read by all
    if (page + 1 < end_closed) LoadClosed<B>(a, task, page + 1, closed);
    CommitCopies();
    tiles::AddPage(a, task, page, queries, here, rows);
  }
  tiles::Finish(a, task, rows);
}

template <typename B>
void LaunchTile(Device& device, const AttendArgs& args) {
  Launch(
      device, AttendClosedKernel<B>,
      {.blocks_x = args.n_tasks,
       .blocks_y = args.n_kv_heads,
       .threads = B::kThreads,
       .shared_bytes = B::kQueryBytes + B::kPageBytes + ClosedTileBytes(B::kDim, args.closed_bits)},
      args);
}

}  // namespace

void AttendClosedWithTensorTiles(Device& device, const AttendArgs& args) {
  tiles::WithHeadDim(args.head_dim, [&]<int kHeadDim>() {
    if (args.tile == RowTile::kFew) {
      return LaunchTile<tiles::SharedRowsBlock<kHeadDim>>(device, args);
    }
    LaunchTile<tiles::Block<kHeadDim, 4, 2>>(device, args);
  });
}

}  // namespace lowkey
