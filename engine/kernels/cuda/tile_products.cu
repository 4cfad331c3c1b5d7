// Products of bf16 rows and weights by tensor cores, of one order of sums for all numbers of rows:
//
//   the products of 32 successive k are two steps of 16 (TileOfK); the steps of an eighth of n_in
//   are summed one after another, then the eighths are.
//
// A few rows are multiplied by blocks that give each eighth to a warp, so that even a narrow weight
// is read by the whole device; many rows by blocks that go through the eighths in turn and read a
// weight once for 128 rows.

#include "engine/kernels/cuda/mma.h"
#include "engine/kernels/cuda/products.h"

namespace lowkey {
namespace {

constexpr int kEighths = 8;
constexpr int kThreads = kEighths * kWarp;
constexpr int kChunk = 32;       // k's that a block goes on by
constexpr int kPiece = 8;        // of them in one lane's 16 bytes
constexpr int kStages = 4;       // chunks on their way to shared memory
constexpr int kManyTile = 128;   // columns and rows of a block for many rows
constexpr int kManyFewest = 65;  // rows

struct TileArgs {
  const uint16_t* weight = nullptr;  // [n_out, n_in]
  int64_t n_out = 0, n_in = 0;
  const uint16_t* x = nullptr;
  int64_t ld_x = 0, n_rows = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
  const float* bias = nullptr;
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
};

struct alignas(16) Piece {
  uint32_t words[4];
};

// Of row g of a tile of 32 k, lane 4 g + t has numbers 8 t .. 8 t + 7. Steps take their k in that
// order, 4 t + {0, 1} and 4 t + {2, 3} of each half where the product has 2 t and 2 t + 8: which k
// stands where is nothing to a sum, so long as it is the same on both sides.
__device__ inline void MultiplyChunk(float (&c)[4], const Piece& low, const Piece& high,
                                     const Piece& x) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const uint32_t a[4] = {low.words[2 * step], high.words[2 * step], low.words[2 * step + 1],
                           high.words[2 * step + 1]};
    MultiplyTiles(c, a, x.words[2 * step], x.words[2 * step + 1]);
  }
}

__device__ inline int64_t ChunksOf(const TileArgs& a) { return (a.n_in + kChunk - 1) / kChunk; }
__device__ inline int64_t FirstChunk(const TileArgs& a, int eighth) {
  return ChunksOf(a) * eighth / kEighths;
}

// Eight numbers of a row, zeros past its end. Rows are aligned to pieces, and so is their length.
__device__ inline Piece ReadPiece(const uint16_t* row, int64_t k, int64_t n_in) {
  Piece piece{{0, 0, 0, 0}};
  if (k < n_in) piece = *reinterpret_cast<const Piece*>(row + k);
  return piece;
}

// A number past the last one reads the last: its result is not stored.
__device__ inline int64_t AtMost(int64_t i, int64_t n) { return i < n ? i : n - 1; }

__device__ inline void Store(const TileArgs& a, int64_t row, int64_t column, float sum) {
  if (row >= a.n_rows || column >= a.n_out) return;
  if (a.bias != nullptr) sum += a.bias[column];
  float& y = a.y[row * a.ld_y + column];
  y = a.into == GemmArgs::Into::kAccumulate ? y + sum : sum;
}

// 16 kColumns columns, 8 kRows rows of a block; every warp an eighth of k.
template <int kColumns, int kRows>
__global__ void __launch_bounds__(kThreads) FewRowsKernel(TileArgs a) {
  constexpr int kTile = 16 * kColumns * 8 * kRows;
  constexpr int kBatch = 4 / kColumns;  // chunks
  LK_DYNAMIC_SHARED(float, partial);    // [kEighths, 8 kRows, 16 kColumns]
  const int eighth = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int64_t first_column = int64_t{blockIdx.x} * 16 * kColumns;
  float sums[kColumns][kRows][4] = {};
  const uint16_t* w[2 * kColumns];
  const uint16_t* x[kRows];
#pragma unroll
  for (int i = 0; i < 2 * kColumns; ++i) {
    w[i] = a.weight + AtMost(first_column + 8 * i + g, a.n_out) * a.n_in;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = a.x + AtMost(8 * r + g, a.n_rows) * a.ld_x;
  const int64_t end = FirstChunk(a, eighth + 1);
  for (int64_t chunk = FirstChunk(a, eighth); chunk < end; chunk += kBatch) {
    // All of a batch's weights are asked for before any is used: there are as many bytes on their
    // way as the memory needs to be busy (32 KiB for each multiprocessor).
    Piece weights[kBatch][2 * kColumns];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int i = 0; i < 2 * kColumns; ++i) {
        const int64_t k = (chunk + b) * kChunk + kPiece * t;
        weights[b][i] = ReadPiece(w[i], k, chunk + b < end ? a.n_in : 0);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (chunk + b < end) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Piece row = ReadPiece(x[r], (chunk + b) * kChunk + kPiece * t, a.n_in);
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            MultiplyChunk(sums[i][r], weights[b][2 * i], weights[b][2 * i + 1], row);
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = 8 * r + 2 * t + j % 2, column = 16 * i + g + 8 * (j / 2);
        partial[eighth * kTile + row * 16 * kColumns + column] = sums[i][r][j];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    float sum = 0;
    for (int e = 0; e < kEighths; ++e) sum += partial[e * kTile + i];
    Store(a, i / (16 * kColumns), first_column + i % (16 * kColumns), sum);
  }
}

// A chunk of 128 weights' columns and of 128 rows, [128, 32] each. Eight lanes that read at once
// read 128 bytes that follow each other.
struct Stage {
  uint16_t w[kManyTile * kChunk];
  uint16_t x[kManyTile * kChunk];
};

__device__ inline void CopyPiece(uint16_t* to, const uint16_t* row, int64_t k, int64_t n_in) {
  if (k < n_in) {
    CopyAsync16(to, row + k);
  } else {
    *reinterpret_cast<Piece*>(to) = Piece{{0, 0, 0, 0}};
  }
}

__device__ inline void FillStage(const TileArgs& a, Stage& stage, int64_t first_column,
                                 int64_t first_row, int64_t chunk) {
  if (chunk < ChunksOf(a)) {
    for (int i = threadIdx.x; i < kManyTile * kChunk / kPiece; i += kThreads) {
      const int row = i / (kChunk / kPiece);
      const int64_t k = chunk * kChunk + i % (kChunk / kPiece) * kPiece;
      CopyPiece(stage.w + i * kPiece, a.weight + AtMost(first_column + row, a.n_out) * a.n_in, k,
                a.n_in);
      CopyPiece(stage.x + i * kPiece, a.x + AtMost(first_row + row, a.n_rows) * a.ld_x, k, a.n_in);
    }
  }
  CommitCopies();  // also of nothing, so that groups count chunks
}

// Warps stand 4 x 2 over the block's tile: 32 columns and 64 rows each.
constexpr int kWarpColumns = 2;  // of 16
constexpr int kWarpRows = 8;     // of 8

__device__ inline void MultiplyStage(const Stage& stage,
                                     float (&sums)[kWarpColumns][kWarpRows][4]) {
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const auto* w = reinterpret_cast<const Piece*>(stage.w) + (warp / 2 * 32 + g) * 4 + t;
  const auto* x = reinterpret_cast<const Piece*>(stage.x) + (warp % 2 * 64 + g) * 4 + t;
  Piece weights[2 * kWarpColumns];
#pragma unroll
  for (int i = 0; i < 2 * kWarpColumns; ++i) weights[i] = w[i * 8 * 4];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const Piece row = x[r * 8 * 4];
#pragma unroll
    for (int i = 0; i < kWarpColumns; ++i) {
      MultiplyChunk(sums[i][r], weights[2 * i], weights[2 * i + 1], row);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) ManyRowsKernel(TileArgs a) {
  LK_DYNAMIC_SHARED(Stage, stages);  // [kStages]
  // Blocks of the same columns stand together, so that their weights come from the cache.
  const int64_t row_tiles = (a.n_rows + kManyTile - 1) / kManyTile;
  const int64_t first_row = blockIdx.x % row_tiles * kManyTile;
  const int64_t first_column = blockIdx.x / row_tiles * kManyTile;
  for (int s = 0; s + 1 < kStages; ++s) FillStage(a, stages[s], first_column, first_row, s);
  float totals[kWarpColumns][kWarpRows][4] = {};
  int64_t chunk = 0;
  for (int eighth = 0; eighth < kEighths; ++eighth) {
    float sums[kWarpColumns][kWarpRows][4] = {};
    for (const int64_t end = FirstChunk(a, eighth + 1); chunk < end; ++chunk) {
      WaitCopies<kStages - 2>();
      __syncthreads();  // all have come, and all have read what is filled next
      FillStage(a, stages[(chunk + kStages - 1) % kStages], first_column, first_row,
                chunk + kStages - 1);
      MultiplyStage(stages[chunk % kStages], sums);
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
      for (int j = 0; j < 4; ++j) {
        Store(a, first_row + warp % 2 * 64 + 8 * r + 2 * t + j % 2,
              first_column + warp / 2 * 32 + 16 * i + g + 8 * (j / 2), totals[i][r][j]);
      }
    }
  }
}

template <int kColumns, int kRows>
void LaunchFew(Device& device, const TileArgs& a) {
  const LaunchShape shape{
      .blocks_x = (a.n_out + 16 * kColumns - 1) / (16 * kColumns),
      .threads = kThreads,
      .shared_bytes = int64_t{kEighths} * 16 * kColumns * 8 * kRows * int64_t{sizeof(float)}};
  Launch(device, FewRowsKernel<kColumns, kRows>, shape, a);
}

}  // namespace

void MultiplyByTiles(Device& device, const ProductArgs& args) {
  const DeviceWeight& w = *args.weight;
  const TileArgs a{reinterpret_cast<const uint16_t*>(w.data()),
                   w.n_out(),
                   w.n_in(),
                   static_cast<const uint16_t*>(args.x),
                   args.ld_x,
                   args.n_rows,
                   args.y,
                   args.ld_y,
                   args.bias,
                   args.into};
  if (a.n_rows >= kManyFewest) {
    const auto tiles = [](int64_t n) { return (n + kManyTile - 1) / kManyTile; };
    Launch(device, ManyRowsKernel,
           {.blocks_x = tiles(a.n_out) * tiles(a.n_rows),
            .threads = kThreads,
            .shared_bytes = kStages * int64_t{sizeof(Stage)}},
           a);
  } else if (a.n_rows > 32) {
    LaunchFew<2, 8>(device, a);
  } else if (a.n_rows > 16) {
    LaunchFew<1, 4>(device, a);
  } else if (a.n_rows > 8) {
    LaunchFew<1, 2>(device, a);
  } else if (a.n_rows > 0) {
    LaunchFew<1, 1>(device, a);
  }
}

bool TilesTake(const ProductArgs& args) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return args.weight->type() == StorageType::kBFloat16 && args.weight->n_in() % kPiece == 0 &&
         args.ld_x % kPiece == 0 && is_aligned(args.x) && is_aligned(args.weight->data());
}

}  // namespace lowkey
