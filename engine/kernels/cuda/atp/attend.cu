// The softmax of rows over sinks, principal blocks and exact tokens (ATP, Eq. 7), part by part.

#include "engine/kernels/cuda/atp/reader.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

using atp::kThreads;
using atp::kWarps;
using atp::Reader;
using atp::Sum;

// Blocks at once that leave a thread enough registers: with fewer registers it would spill.
template <int kD>
inline constexpr int kAttendBlocks = kD == 8   ? 2
                                     : kD == 4 ? 0
                                               : 3;

template <typename T, int kD, int kR>
__global__ __launch_bounds__(kThreads, kAttendBlocks<kD>) void AttendKernel(AtpAttendArgs a) {
  LK_DYNAMIC_SHARED(float, memory);
  const AtpPartRun run = a.runs[blockIdx.x];
  if (run.tile == kAtpNoTile) return;
  const int64_t head = blockIdx.y;
  Reader<T, kD, kR> reader(a.read, a.read.tiles[run.tile], static_cast<int>(head), memory);
  reader.LoadQueries();
  for (int64_t part = run.first; part < run.first + run.n; ++part) {
    reader.ReadPart(part);
    if (part > run.first) reader.FoldIntoKept();
    if (part + 1 < run.first + run.n) reader.Keep();
  }
  for (int r = 0; r < kR && reader.has(r); ++r) {
    const int row = reader.first_row + r;
    if (run.into == AtpInto::kOutput) {
      atp::WriteOutput(a.read, reader.t, head, row, reader.sums[r]);
      continue;
    }
    const int64_t d = a.read.model.head_dim;
    float* to = atp::SlotRow(a.read, reader.t.first_slot + run.first, head, row);
    for (int k = 0; k < kD; ++k) {
      const int c = reader.lane + kWarp * k;
      if (c < d) to[c] = reader.sums[r].values[k];
    }
    if (reader.lane == 0) to[d] = reader.sums[r].max, to[d + 1] = reader.sums[r].weights;
  }
}

// Four blocks at once: without this bound the compiler makes room for more blocks, and spills.
template <typename T, int kD, int kR>
__global__ __launch_bounds__(kThreads, 4) void ScoreKernel(AtpScoreArgs a) {
  LK_DYNAMIC_SHARED(float, memory);
  const AtpPartRun run = a.runs[blockIdx.x];
  if (run.tile == kAtpNoTile) return;
  const int head = static_cast<int>(blockIdx.y);
  Reader<T, kD, kR> reader(a.read, a.read.tiles[run.tile], head, memory);
  const AtpSequence& s = reader.s;
  reader.LoadQueries();
  for (int64_t number = run.first; number < run.first + run.n; ++number) {
    const atp::BlockView<T> block = atp::ViewBlock<T>(
        a.read.model, s, a.read.blocks[s.first_block + number], number, a.read.layer, head);
    reader.Project(block);
    for (int page = 0; page * atp::kPage < s.block_tokens; ++page) {
      float scores[kR][2];
      reader.ScorePage(block, number, page, scores);
      for (int r = 0; r < kR && reader.has(r); ++r) {
        float* to = reader.ScoresOf(reader.first_row + r) + number * s.block_tokens +
                    page * atp::kPage + reader.lane;
        to[0] = scores[r][0], to[kWarp] = scores[r][1];
      }
    }
  }
}

// One warp combines one row.
template <int kD>
__global__ void CombineKernel(AtpCombineArgs a) {
  const int32_t tile = a.combined_tiles[blockIdx.x];
  if (tile == kAtpNoTile) return;
  const AtpTile t = a.read.tiles[tile];
  const int64_t head = blockIdx.y, d = a.read.model.head_dim;
  const int lane = threadIdx.x % kWarp;
  for (int row = threadIdx.x / kWarp; row < t.n_rows; row += kWarps) {
    Sum<kD> all;
    for (int64_t part = 0; part < t.n_parts; ++part) {
      const float* from = atp::SlotRow(a.read, t.first_slot + part, head, row);
      Sum<kD> sum;
      for (int k = 0; k < kD; ++k) {
        const int c = lane + kWarp * k;
        sum.values[k] = c < d ? from[c] : 0.0f;
      }
      sum.max = from[d], sum.weights = from[d + 1];
      all.Fold(sum);
    }
    atp::WriteOutput(a.read, t, head, row, all);
  }
}

// Calls launch.operator()<T, kD, kR>() for the model and its tiles.
template <typename T, int kD, typename F>
void ForRows(const AtpReadArgs& args, F launch) {
  if (args.max_tile_rows <= kWarps) return launch.template operator()<T, kD, 1>();
  launch.template operator()<T, kD, kAtpTileRows / kWarps>();
}
template <typename T, typename F>
void ForWidth(const AtpReadArgs& args, F launch) {
  if (args.model.head_dim <= 32) return ForRows<T, 1>(args, launch);
  if (args.model.head_dim <= 64) return ForRows<T, 2>(args, launch);
  if (args.model.head_dim <= 128) return ForRows<T, 4>(args, launch);
  ForRows<T, 8>(args, launch);
}
template <typename F>
void ForModel(const AtpReadArgs& args, F launch) {
  if (args.model.type == StorageType::kFloat32) return ForWidth<float>(args, launch);
  ForWidth<uint16_t>(args, launch);
}

LaunchShape Blocks(int64_t n, const AtpReadArgs& args) {
  return {.blocks_x = n, .blocks_y = args.model.n_kv_heads, .threads = kThreads};
}

// Returns the shape of n blocks that read.
template <typename T, int kD, int kR>
LaunchShape ReaderBlocks(int64_t n, const AtpReadArgs& args) {
  LaunchShape shape = Blocks(n, args);
  shape.shared_bytes = Reader<T, kD, kR>::SharedFloats(args.model.head_dim, args.max_rank) *
                       static_cast<int64_t>(sizeof(float));
  return shape;
}

}  // namespace

void AtpAttendOnDevice(Device& device, const AtpAttendArgs& args) {
  ForModel(args.read, [&]<typename T, int kD, int kR>() {
    Launch(device, AttendKernel<T, kD, kR>, ReaderBlocks<T, kD, kR>(args.n_runs, args.read), args);
  });
}

void AtpScoreOnDevice(Device& device, const AtpScoreArgs& args) {
  ForModel(args.read, [&]<typename T, int kD, int kR>() {
    Launch(device, ScoreKernel<T, kD, kR>, ReaderBlocks<T, kD, kR>(args.n_runs, args.read), args);
  });
}

void AtpCombineOnDevice(Device& device, const AtpCombineArgs& args) {
  ForModel(args.read, [&]<typename, int kD, int>() {
    Launch(device, CombineKernel<kD>, Blocks(args.n_tiles, args.read), args);
  });
}

}  // namespace lowkey
