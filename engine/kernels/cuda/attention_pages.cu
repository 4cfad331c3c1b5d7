// What stands around attention: keys and values into pages, spread rows together again.

#include "engine/kernels/cuda/attention.h"
#include "engine/kernels/cuda/attention_rows.h"

namespace lowkey {
namespace {

constexpr int kThreads = 128;

template <typename T>
__global__ void WriteKvKernel(WriteKvArgs a) {
  const CacheSlot slot = a.slots[blockIdx.x];
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

// A warp a row, 128 columns of it at a time.
__global__ void JoinPartsKernel(AttendArgs a) {
  constexpr int kColumns = 4;
  const JoinTask task = a.joins[blockIdx.x];
  const int64_t kv_head = blockIdx.y;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  RowTileTask tile;
  tile.first_step_row = task.first_step_row;
  tile.first = task.first;
  for (int row = warp; row < task.n_rows; row += kThreads / kWarp) {
    float* out = OutputOf(a, PlaceOf(tile, a.group, row), kv_head);
    for (int64_t first = lane; first < a.head_dim; first += kColumns * kWarp) {
      RowState state = {NoScore(), 0};
      float sums[kColumns] = {};
      for (int i = 0; i < task.n_parts; ++i) {
        const int64_t part = PartOf(a, task.part + int64_t{i} * task.n_rows + row, kv_head);
        const RowFold fold = FoldRow(state, {a.part_states[2 * part], a.part_states[2 * part + 1]});
        state = fold.joined;
        for (int j = 0; j < kColumns; ++j) {
          const int64_t column = first + j * kWarp;
          if (column >= a.head_dim) break;
          sums[j] = fold.Join(sums[j], a.parts[part * a.head_dim + column]);
        }
      }
      const float scale = 1.0f / state.sum;
      for (int j = 0; j < kColumns && first + j * kWarp < a.head_dim; ++j) {
        out[first + j * kWarp] = sums[j] * scale;
      }
    }
  }
}

}  // namespace

void WriteKvOnDevice(Device& device, const WriteKvArgs& args) {
  Launch(device,
         args.cache_type == StorageType::kFloat32 ? WriteKvKernel<float> : WriteKvKernel<uint16_t>,
         {.blocks_x = args.n_slots, .threads = 256}, args);
}

void AttendOnDevice(Device& device, const AttendArgs& args) {
  (HasTensorTiles(args.cache_type, args.head_dim) ? AttendWithTensorTiles : AttendPlainly)(device,
                                                                                           args);
}

void JoinPartsOnDevice(Device& device, const AttendArgs& args) {
  Launch(device, JoinPartsKernel,
         {.blocks_x = args.n_joins, .blocks_y = args.n_kv_heads, .threads = kThreads}, args);
}

}  // namespace lowkey
