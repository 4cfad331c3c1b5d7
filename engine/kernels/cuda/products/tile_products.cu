// Products of bf16 rows with weights by tensor cores. The order of sums is the same for all numbers
// of rows: the products of 32 successive k are two steps of 16 (MultiplyChunk); the steps of an
// eighth of n_in are summed one after another, then the eighths are. Where a block of k has a
// scale, its steps are summed alone and added times the scale.
//
// For few rows a block gives each eighth to a warp, so that the whole device reads even a narrow
// weight. For many rows a block takes the eighths in turn and reads a weight once per 128 rows.

#include <algorithm>

#include "engine/kernels/cuda/grid/mma.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/cuda/products/rows.h"
#include "engine/kernels/cuda/products/weight_formats.h"

namespace lowkey {
namespace {

constexpr int kThreads = kEighths * kWarp;
constexpr int kChunk = 32;       // k's of two steps
constexpr int kPiece = 8;        // bf16 in one lane's 16 bytes
constexpr int kLanes = 4;        // lanes that hold a row's block, 16 bytes each
constexpr int kManyTile = 128;   // columns and rows of a block for many rows
constexpr int kManyFewest = 65;  // rows

// In a tile of 32 k, lane 4 g + t has numbers 8 t .. 8 t + 7 of row g. A step takes its k in that
// order, 4 t + {0, 1} and 4 t + {2, 3} of each half instead of 2 t and 2 t + 8: a sum does not
// depend on the place of a k, as long as both sides agree.
__device__ inline void MultiplyChunk(float (&c)[4], const Piece& low, const Piece& high,
                                     const Piece& x) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const uint32_t a[4] = {low.words[2 * step], high.words[2 * step], low.words[2 * step + 1],
                           high.words[2 * step + 1]};
    MultiplyTiles(c, a, x.words[2 * step], x.words[2 * step + 1]);
  }
}

// Adds the products of a block of k: `low` and `high` are a row of C's columns g and g + 8.
template <typename Format>
__device__ inline void MultiplyBlock(float (&sums)[4], const Piece (&low)[Format::kChunks],
                                     const Piece (&high)[Format::kChunks],
                                     const Piece (&x)[Format::kChunks], const float (&scales)[2]) {
  float of_block[4] = {};
  float(&to)[4] = Format::kScalesBlocks ? of_block : sums;
#pragma unroll
  for (int c = 0; c < Format::kChunks; ++c) MultiplyChunk(to, low[c], high[c], x[c]);
  if constexpr (Format::kScalesBlocks) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] = fmaf(scales[j / 2], of_block[j], sums[j]);
  }
}

template <typename Format>
__device__ inline void WidenBlock(const Piece& stored, Piece (&wide)[Format::kChunks]) {
#pragma unroll
  for (int c = 0; c < Format::kChunks; ++c) wide[c] = Format::Widen(stored, c);
}

template <typename Format>
__device__ inline int64_t BlocksOf(const ProductKernelArgs& a) {
  constexpr int kBlock = Format::kChunks * kChunk;
  return (a.n_in + kBlock - 1) / kBlock;
}
template <typename Format>
__device__ inline int64_t FirstBlock(const ProductKernelArgs& a, int eighth) {
  return BlocksOf<Format>(a) * eighth / kEighths;
}

// Reads piece `at` of a row, zeros past its end. Rows and their lengths are aligned to pieces.
__device__ inline Piece ReadPiece(const void* row, int64_t at, int64_t row_bytes) {
  Piece piece{{0, 0, 0, 0}};
  if (at * int64_t{sizeof(Piece)} < row_bytes) piece = static_cast<const Piece*>(row)[at];
  return piece;
}

// The weights that a warp of FewRowsKernel reads from some successive blocks before it multiplies.
// The rows' numbers of these blocks are copied to shared memory at the same time.
template <typename Format, int kColumns, int kRows>
struct Batch {
  static constexpr int kChunks = Format::kChunks;
  // At most 8 KiB of rows a warp: more would exceed 99 KiB a block.
  static constexpr int kBlocks = std::min(4 / kColumns, 16 / (kRows * kChunks));
  // Bytes of shared memory for a warp, which holds its rows, and in the end its sums.
  static constexpr int kRowBytes =
      kBlocks * kChunks * kRows * kWarp * static_cast<int>(sizeof(Piece));
  static constexpr int kSums = 16 * kColumns * 8 * kRows;
  static constexpr int kWarpFloats = std::max(kRowBytes / static_cast<int>(sizeof(float)), kSums);

  Piece pieces[kBlocks][2 * kColumns];
  float scales[kBlocks][kColumns][2];

  // Returns where a lane has its piece of its r-th row.
  __device__ static Piece& RowPiece(float* of_warp, int block, int chunk, int r) {
    const int lane = threadIdx.x % kWarp;
    return reinterpret_cast<Piece*>(
        of_warp)[((block * kChunks + chunk) * kRows + r) * kWarp + lane];
  }
};

// Reads columns first_column + 8 i + g of blocks [block, end), zeros past the end.
template <typename Format, int kColumns, int kRows>
__device__ inline void ReadBatch(const ProductKernelArgs& a, int64_t first_column, int64_t block,
                                 int64_t end, Batch<Format, kColumns, kRows>& batch) {
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int b = 0; b < batch.kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < 2 * kColumns; ++i) {
      const int64_t column = AtMost(first_column + 8 * i + g, a.n_out);
      const bool is_there = block + b < end;
      batch.pieces[b][i] = ReadPiece(a.weight + column * a.row_bytes, (block + b) * kLanes + t,
                                     is_there ? a.row_bytes : 0);
      if constexpr (Format::kScalesBlocks) {
        batch.scales[b][i / 2][i % 2] =
            is_there ? BFloat16ToFloat(a.scales[(block + b) * a.ld_scales + column]) : 0.0f;
      }
    }
  }
}

// Begins to copy the lane's pieces of rows x at the blocks of a batch.
template <typename Format, int kColumns, int kRows>
__device__ inline void BeginRows(const ProductKernelArgs& a, const uint16_t* const (&x)[kRows],
                                 int64_t block, float* of_warp) {
  using RowBatch = Batch<Format, kColumns, kRows>;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int b = 0; b < RowBatch::kBlocks; ++b) {
#pragma unroll
    for (int c = 0; c < RowBatch::kChunks; ++c) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        CopyPiece(RowBatch::RowPiece(of_warp, b, c, r), x[r],
                  ((block + b) * RowBatch::kChunks + c) * kLanes + t, 2 * a.n_in);
      }
    }
  }
  CommitCopies();
}

// A block computes 16 kColumns columns of 8 kRows rows; every warp has an eighth of k.
template <typename Format, int kColumns, int kRows>
__global__ void __launch_bounds__(kThreads) FewRowsKernel(ProductKernelArgs a) {
  using WeightBatch = Batch<Format, kColumns, kRows>;
  constexpr int kTile = WeightBatch::kSums, kChunks = Format::kChunks;
  LK_DYNAMIC_SHARED(float, partial);  // by warp: [8 kRows, 16 kColumns]
  const int eighth = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int64_t first_column = int64_t{blockIdx.x} * 16 * kColumns;
  float sums[kColumns][kRows][4] = {};
  const uint16_t* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = RowOf(a, 8 * r + g);
  const int64_t end = FirstBlock<Format>(a, eighth + 1);
  float* const of_warp = partial + eighth * WeightBatch::kWarpFloats;
  for (int64_t block = FirstBlock<Format>(a, eighth); block < end; block += WeightBatch::kBlocks) {
    // All numbers of a batch are loaded before any is used: so many bytes are on their way that the
    // memory is busy (32 KiB of weights a block, 16 KiB of those of 8 bits and more than 16 rows).
    // A lane reads only the rows that it copied.
    WeightBatch batch;
    BeginRows<Format, kColumns>(a, x, block, of_warp);
    ReadBatch(a, first_column, block, end, batch);
    WaitCopies<0>();
#pragma unroll
    for (int b = 0; b < WeightBatch::kBlocks; ++b) {
      if (block + b < end) {
        Piece wide[2 * kColumns][kChunks];
#pragma unroll
        for (int i = 0; i < 2 * kColumns; ++i) WidenBlock<Format>(batch.pieces[b][i], wide[i]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          Piece row[kChunks];
#pragma unroll
          for (int c = 0; c < kChunks; ++c) {
            row[c] = WeightBatch::RowPiece(of_warp, b, c, r);
          }
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            MultiplyBlock<Format>(sums[i][r], wide[2 * i], wide[2 * i + 1], row,
                                  batch.scales[b][i]);
          }
        }
      }
    }
  }
  __syncwarp();  // all lanes have read their rows
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = 8 * r + 2 * t + j % 2, column = 16 * i + g + 8 * (j / 2);
        of_warp[row * 16 * kColumns + column] = sums[i][r][j];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile / 2; i += kThreads) {
    const int low = i / 8 * 16 + i % 8;  // the place of the pair's first sum
    float pair[2] = {};
    for (int e = 0; e < kEighths; ++e) {
      pair[0] += partial[e * WeightBatch::kWarpFloats + low];
      pair[1] += partial[e * WeightBatch::kWarpFloats + low + 8];
    }
    StorePair<Format>(a, low / (16 * kColumns), first_column + low % (16 * kColumns), pair);
  }
}

// A block of k of 128 columns of weights and of 128 rows, in chunks. Eight lanes that read at once
// read 128 successive bytes.
template <typename Format>
struct Stage {
  static constexpr int kAhead = Format::kChunks == 1 ? 4 : 3;  // stages that are being filled
  Piece w[kManyTile * kLanes];
  Piece x[Format::kChunks][kManyTile * kLanes];
  Piece scales[Format::kScalesBlocks ? kManyTile / kPiece : 1];
};

template <typename Format>
__device__ inline void FillStage(const ProductKernelArgs& a, Stage<Format>& stage,
                                 int64_t first_column, int64_t first_row, int64_t block) {
  if (block < BlocksOf<Format>(a)) {
    for (int i = threadIdx.x; i < kManyTile * kLanes; i += kThreads) {
      const int row = i / kLanes, lane = i % kLanes;
      CopyPiece(stage.w[i], a.weight + AtMost(first_column + row, a.n_out) * a.row_bytes,
                block * kLanes + lane, a.row_bytes);
#pragma unroll
      for (int c = 0; c < Format::kChunks; ++c) {
        CopyPiece(stage.x[c][i], RowOf(a, first_row + row),
                  (block * Format::kChunks + c) * kLanes + lane, 2 * a.n_in);
      }
    }
    if constexpr (Format::kScalesBlocks) {
      if (threadIdx.x < kManyTile / kPiece) {
        CopyPiece(stage.scales[threadIdx.x], a.scales + block * a.ld_scales,
                  first_column / kPiece + threadIdx.x, 2 * a.ld_scales);
      }
    }
  }
  CommitCopies();  // an empty group too, so that groups count blocks
}

// Warps are 4 x 2 over the block's tile: 32 columns and 64 rows each.
constexpr int kWarpColumns = 2;  // of 16 columns
constexpr int kWarpRows = 8;     // of 8 rows

template <typename Format>
__device__ inline void MultiplyStage(const Stage<Format>& stage,
                                     float (&sums)[kWarpColumns][kWarpRows][4]) {
  constexpr int kChunks = Format::kChunks;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int first_column = warp / 2 * 32 + g, first_row = warp % 2 * 64 + g;
  Piece wide[2 * kWarpColumns][kChunks];
  float scales[kWarpColumns][2] = {};
#pragma unroll
  for (int i = 0; i < 2 * kWarpColumns; ++i) {
    WidenBlock<Format>(stage.w[(first_column + 8 * i) * kLanes + t], wide[i]);
    if constexpr (Format::kScalesBlocks) {
      const auto* stored = reinterpret_cast<const uint16_t*>(stage.scales);
      scales[i / 2][i % 2] = BFloat16ToFloat(stored[first_column + 8 * i]);
    }
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    Piece row[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) row[c] = stage.x[c][(first_row + 8 * r) * kLanes + t];
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      MultiplyBlock<Format>(sums[i][r], wide[2 * i], wide[2 * i + 1], row, scales[i]);
    }
  }
}

template <typename Format>
__global__ void __launch_bounds__(kThreads, 1) ManyRowsKernel(ProductKernelArgs a) {
  constexpr int kAhead = Stage<Format>::kAhead;
  LK_DYNAMIC_SHARED(Stage<Format>, stages);  // [kAhead]
  // Blocks of the same columns are neighbors, so that their weights come from the cache.
  const int64_t row_tiles = (a.n_rows + kManyTile - 1) / kManyTile;
  const int64_t first_row = blockIdx.x % row_tiles * kManyTile;
  const int64_t first_column = blockIdx.x / row_tiles * kManyTile;
  for (int s = 0; s + 1 < kAhead; ++s) FillStage(a, stages[s], first_column, first_row, s);
  float totals[kWarpColumns][kWarpRows][4] = {};
  int64_t block = 0;
  for (int eighth = 0; eighth < kEighths; ++eighth) {
    float sums[kWarpColumns][kWarpRows][4] = {};
    for (const int64_t end = FirstBlock<Format>(a, eighth + 1); block < end; ++block) {
      WaitCopies<kAhead - 2>();
      __syncthreads();  // the stage is here, and all have read the stage that is filled next
      FillStage(a, stages[(block + kAhead - 1) % kAhead], first_column, first_row,
                block + kAhead - 1);
      MultiplyStage(stages[block % kAhead], sums);
    }
#pragma unroll
    for (int i = 0; i < kWarpColumns * kWarpRows * 4; ++i) {
      (&totals[0][0][0])[i] += (&sums[0][0][0])[i];
    }
  }
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kWarpColumns; ++i) {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        StorePair<Format>(a, first_row + warp % 2 * 64 + 8 * r + 2 * t + j,
                          first_column + warp / 2 * 32 + 16 * i + g,
                          {totals[i][r][j], totals[i][r][j + 2]});
      }
    }
  }
}

template <typename Format, int kColumns, int kRows>
void LaunchFew(Device& device, const ProductKernelArgs& a) {
  const LaunchShape shape{
      .blocks_x = (a.n_out + 16 * kColumns - 1) / (16 * kColumns),
      .threads = kThreads,
      .shared_bytes =
          int64_t{kEighths} * Batch<Format, kColumns, kRows>::kWarpFloats * int64_t{sizeof(float)}};
  Launch(device, FewRowsKernel<Format, kColumns, kRows>, shape, a);
}

template <typename Format>
void LaunchFor(Device& device, const ProductKernelArgs& a) {
  if (a.n_rows >= kManyFewest) {
    const auto tiles = [](int64_t n) { return (n + kManyTile - 1) / kManyTile; };
    Launch(device, ManyRowsKernel<Format>,
           {.blocks_x = tiles(a.n_out) * tiles(a.n_rows),
            .threads = kThreads,
            .shared_bytes = Stage<Format>::kAhead * int64_t{sizeof(Stage<Format>)}},
           a);
  } else if (a.n_rows > 32) {
    LaunchFew<Format, 2, 8>(device, a);
  } else if (a.n_rows > 16) {
    LaunchFew<Format, 1, 4>(device, a);
  } else if (a.n_rows > 8) {
    LaunchFew<Format, 1, 2>(device, a);
  } else if (a.n_rows > 0) {
    LaunchFew<Format, 1, 1>(device, a);
  }
}

void LaunchFor(Device& device, StorageType type, const ProductKernelArgs& a) {
  if (!IsNarrow(type)) return LaunchFor<BFloat16Format>(device, a);
  if (type == StorageType::kInt8) return LaunchFor<Int8Format>(device, a);
  LaunchFor<Float8Format>(device, a);
}

}  // namespace

void MultiplyByTiles(Device& device, const ProductArgs& args) {
  LaunchFor(device, args.weight->type(), KernelArgsOf(args));
}

void MultiplyGatedByTiles(Device& device, const GatedProductArgs& args) {
  LaunchFor(device, args.product.weight->type(), KernelArgsOf(args));
}

bool TilesTake(const ProductArgs& args) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return args.weight->type() != StorageType::kFloat32 && args.weight->n_in() % kPiece == 0 &&
         args.ld_x % kPiece == 0 && is_aligned(args.x) && is_aligned(args.weight->data());
}

}  // namespace lowkey
