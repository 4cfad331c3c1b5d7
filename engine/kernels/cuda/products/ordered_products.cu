// Products of few bf16 rows with bf16 weights, whose sums follow the order of k: one step of 16
// after another. Methods of cuBLASLt that do not cut a sum add it up like this, and read a weight
// of few columns with a part of the device only. Here a warp computes eight columns, the fewest
// that tensor cores take. Weights and rows are copied to shared memory some stages ahead, so that
// the memory is busy.

#include "engine/kernels/cuda/grid/mma.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/cuda/products/rows.h"
#include "engine/kernels/cuda/products/weight_formats.h"

namespace lowkey {
namespace {

constexpr int kColumns = 8;  // of a warp
constexpr int kPieces = 16;  // of a row of a stage, eight numbers each
constexpr int kStages = 8;
constexpr int64_t kEnoughBlocks = 256;  // that all multiprocessors of a device read

// Some k of the block's columns and of all rows.
template <int kWarps>
struct Stage {
  Piece w[kWarps * kColumns * kPieces];
  Piece x[kMostOrderedRows * kPieces];
};

// Returns the place of a row's piece. The same piece of eight rows is in different banks.
__device__ inline int PlaceOf(int row, int piece) { return row * kPieces + (piece ^ (row % 8)); }

template <int kWarps>
__device__ inline void FillStage(const ProductKernelArgs& a, Stage<kWarps>& stage,
                                 int64_t first_column, int64_t number) {
  if (number * kPieces * int64_t{sizeof(Piece)} < a.row_bytes) {
    for (int i = threadIdx.x; i < kWarps * kColumns * kPieces; i += kWarps * kWarp) {
      const int column = i / kPieces, piece = i % kPieces;
      CopyPiece(stage.w[PlaceOf(column, piece)],
                a.weight + AtMost(first_column + column, a.n_out) * a.row_bytes,
                number * kPieces + piece, a.row_bytes);
    }
    for (int i = threadIdx.x; i < static_cast<int>(a.n_rows) * kPieces; i += kWarps * kWarp) {
      const int row = i / kPieces, piece = i % kPieces;
      CopyPiece(stage.x[PlaceOf(row, piece)], RowOf(a, row), number * kPieces + piece, a.row_bytes);
    }
  }
  CommitCopies();  // an empty group too, so that groups count stages
}

// sums [16 rows, 8 columns] += the products of a stage. Rows past the last repeat it.
template <int kWarps>
__device__ inline void MultiplyStage(const ProductKernelArgs& a, const Stage<kWarps>& stage,
                                     float (&sums)[4]) {
  const int lane = LaneIndex(), matrix = lane / 8;
  const int column = WarpIndex() * kColumns + lane % 8;
  const auto row = static_cast<int>(AtMost(matrix % 2 * 8 + lane % 8, a.n_rows));
#pragma unroll
  for (int piece = 0; piece < kPieces; piece += 4) {
    uint32_t w[4];  // four pieces of each column
    LoadTiles(w, &stage.w[PlaceOf(column, piece + matrix)]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t x[4];
      LoadTiles(x, &stage.x[PlaceOf(row, piece + 2 * step + matrix / 2)]);
      MultiplyTiles(sums, x, w[2 * step], w[2 * step + 1]);
    }
  }
}

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) OrderedKernel(ProductKernelArgs a) {
  LK_DYNAMIC_SHARED(Stage<kWarps>, stages);  // [kStages]
  constexpr int64_t kStageBytes = kPieces * int64_t{sizeof(Piece)};
  const int64_t first_column = int64_t{blockIdx.x} * kWarps * kColumns;
  for (int s = 0; s + 1 < kStages; ++s) FillStage(a, stages[s], first_column, s);
  float sums[4] = {};
  for (int64_t s = 0; s * kStageBytes < a.row_bytes; ++s) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // the stage is here, and all have read the stage that is filled next
    FillStage(a, stages[(s + kStages - 1) % kStages], first_column, s + kStages - 1);
    MultiplyStage(a, stages[s % kStages], sums);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t row = LaneIndex() / 4 + j / 2 * 8;
    const int64_t column = first_column + WarpIndex() * kColumns + LaneIndex() % 4 * 2 + j % 2;
    if (row >= a.n_rows || column >= a.n_out) continue;
    StoreNumber(a, row, column, Finished<BFloat16Format>(a, column, sums[j]));
  }
}

template <int kWarps>
void LaunchFor(Device& device, const ProductKernelArgs& a) {
  Launch(device, OrderedKernel<kWarps>,
         {.blocks_x = (a.n_out + kWarps * kColumns - 1) / (kWarps * kColumns),
          .threads = kWarps * kWarp,
          .shared_bytes = kStages * int64_t{sizeof(Stage<kWarps>)}},
         a);
}

}  // namespace

void MultiplyInOrder(Device& device, const ProductArgs& args) {
  const ProductKernelArgs a = KernelArgsOf(args);
  if (a.n_out >= 4 * kColumns * kEnoughBlocks) return LaunchFor<4>(device, a);
  if (a.n_out >= 2 * kColumns * kEnoughBlocks) return LaunchFor<2>(device, a);
  LaunchFor<1>(device, a);
}

}  // namespace lowkey
