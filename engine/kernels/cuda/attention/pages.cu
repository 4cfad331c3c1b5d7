// Writes keys and values into pages, and joins the parts of rows that several tasks computed.

#include "engine/kernels/cuda/attention/rows.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void WriteKvKernel(WriteKvArgs a) {
  const CacheSlot slot = a.pages.slots[blockIdx.x];
  if (slot.page == nullptr) return;
  const int64_t n = a.n_kv_heads * a.head_dim, plane = kPageTokensInt * a.head_dim;
  T* page = reinterpret_cast<T*>(slot.page) + a.layer * a.n_kv_heads * 2 * plane;
  const float* k = a.k + slot.row * a.ld;
  const float* v = a.v + slot.row * a.ld;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int64_t head = i / a.head_dim;
    T* key = page + head * 2 * plane + slot.slot * a.head_dim + (i - head * a.head_dim);
    key[0] = FromFloat<T>(k[i]);
    key[plane] = FromFloat<T>(v[i]);
  }
}

__host__ __device__ inline int64_t ColumnBlocks(int64_t head_dim) {
  return (head_dim + kWarp - 1) / kWarp;
}

// One warp joins one row, one lane a column. Where rows are few their parts are many, and several
// loads are queued at once.
__global__ void JoinPartsKernel(AttendArgs a) {
  constexpr int kAhead = 16;
  const auto n_column_blocks = static_cast<unsigned>(ColumnBlocks(a.head_dim));
  const JoinTask task = a.joins[blockIdx.x / n_column_blocks];
  const int64_t kv_head = blockIdx.y;
  const int64_t column = blockIdx.x % n_column_blocks * kWarp + threadIdx.x % kWarp;
  if (column >= a.head_dim) return;
  RowTileTask tile;
  tile.first_step_row = task.first_step_row;
  tile.first = task.first;
  for (int row = threadIdx.x / kWarp; row < task.n_rows; row += kThreads / kWarp) {
    RowState state = {NoScore(), 0};
    float sum = 0;
    for (int first = 0; first < task.n_parts; first += kAhead) {
      RowState states[kAhead];
      float sums[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const bool is_one = first + i < task.n_parts;
        const int64_t number = is_one ? first + i : first;
        const int64_t part = PartOf(a, task.part + number * task.n_rows + row, kv_head);
        states[i] = {is_one ? a.part_states[2 * part] : NoScore(), a.part_states[2 * part + 1]};
        sums[i] = a.parts[part * a.head_dim + column];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const RowFold fold = FoldRow(state, states[i]);
        state = fold.joined;
        sum = fold.Join(sum, sums[i]);
      }
    }
    const int64_t at = OutputAt(a, PlaceOf(tile, a.group, row), kv_head) + column;
    const float result = sum * (1.0f / state.sum);
    if (a.rounded != nullptr) {
      a.rounded[at] = FloatToBFloat16(result);
    } else {
      a.out[at] = result;
    }
  }
}

}  // namespace

void WriteKvOnDevice(Device& device, const WriteKvArgs& args) {
  Launch(device,
         args.pages.cache_type == StorageType::kFloat32 ? WriteKvKernel<float>
                                                        : WriteKvKernel<uint16_t>,
         {.blocks_x = args.pages.n_slots, .threads = 256}, args);
}

void AttendOnDevice(Device& device, const AttendArgs& args) {
  if (!HasTensorTiles(args.cache_type, args.head_dim)) return AttendPlainly(device, args);
  if (args.closed_bits > 0) return AttendClosedWithTensorTiles(device, args);
  const bool by_warpgroups =
      args.tile == RowTile::kMany && device.AttendsByWarpgroups(args.head_dim);
  (by_warpgroups ? AttendWithWarpgroups : AttendWithTensorTiles)(device, args);
}

void JoinPartsOnDevice(Device& device, const AttendArgs& args) {
  Launch(device, JoinPartsKernel,
         {.blocks_x = args.n_joins * ColumnBlocks(args.head_dim),
          .blocks_y = args.n_kv_heads,
          .threads = kThreads},
         args);
}

}  // namespace lowkey
