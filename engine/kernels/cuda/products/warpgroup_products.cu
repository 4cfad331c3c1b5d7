// Products of bf16 rows with bf16 weights by warpgroups. A block computes 128 columns (rows of the
// weight, the first operand) of some rows, two warpgroups 64 columns each, and reads both operands
// through a ring of tiles of 64 k.
//
// The order of sums is the same for all numbers of rows: the products of an eighth of n_in are
// summed in steps of 16 k, one after another, then the eighths are added in order. A block takes
// the eighths in turn; where blocks would be fewer than the device's multiprocessors, eight blocks
// take one each, leave their sums in memory, and the last of them to come adds them.

#include <algorithm>

#include "engine/kernels/cuda/grid/warpgroup.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/cuda/products/rows.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;
constexpr int kGroupThreads = 128;
constexpr int kColumns = 128;                      // of a block
constexpr int kGroupColumns = 64;                  // of a warpgroup
constexpr int kTileK = 64;                         // k's of a tile
constexpr int kTilePieces = kTileK / 8;            // 16 bytes each, in a row of a tile
constexpr int kFillRows = kThreads / kTilePieces;  // that all threads copy at once
constexpr int kStep = 16;                          // k's of one product
constexpr int64_t kTileAlignment = 1024;           // bytes
constexpr int64_t kEnoughBlocks = 264;             // two for each multiprocessor

// The ring of a block of kRows rows. Beside the stages that are being filled, one is read, and one
// was read by products that may still run.
template <int kRows>
struct Ring {
  static constexpr int kStages = kRows <= 16    ? 6
                                 : kRows == 32  ? 5
                                 : kRows == 64  ? 4
                                 : kRows == 128 ? 6
                                                : 5;
  static constexpr int kAhead = kStages - 2;
  static constexpr int kRowsOfW = kColumns * kTileK;  // numbers before the rows of x
  static constexpr int kNumbers = (kColumns + kRows) * kTileK;
  static constexpr int64_t kBytes =
      kTileAlignment + int64_t{kStages} * kNumbers * static_cast<int64_t>(sizeof(uint16_t));
  // With few rows two blocks share a multiprocessor, so that one reads while the other begins.
  static constexpr int kBlocks = kRows <= 64 ? 2 : 1;
};

struct WarpgroupArgs {
  ProductKernelArgs product;
  float* sums = nullptr;         // [tiles][kEighths][kRows / 2][kThreads], of split products
  unsigned* counters = nullptr;  // [tiles]
};

__device__ inline int64_t FirstTile(const ProductKernelArgs& a, int64_t eighth) {
  const int64_t n_tiles = (a.n_in + kTileK - 1) / kTileK;
  return n_tiles * eighth / kEighths;
}

// The columns and rows of a block.
struct Place {
  int64_t tile, first_column, first_row;
};

template <int kRows>
__device__ inline Place PlaceOfBlock(const ProductKernelArgs& a) {
  // Blocks of the same columns are neighbors, so that their weights come from the cache.
  const auto row_tiles = static_cast<unsigned>((a.n_rows + kRows - 1) / kRows);
  const unsigned column_tile = blockIdx.x / row_tiles;
  return {blockIdx.x, int64_t{column_tile} * kColumns,
          int64_t{blockIdx.x - column_tile * row_tiles} * kRows};
}

// Begins to copy a piece of every 32nd row from `row` on: of operand rows that begin at `from`,
// where `last` is the last one there is, to those of a tile, where the piece lies at `to` in the
// first of them.
template <int kTileRows>
__device__ inline void CopyRows(const std::byte* from, int64_t row_bytes, int row, int last,
                                bool is_there, uint16_t* to) {
#pragma unroll
  for (int i = 0; i < kTileRows; i += kFillRows) {
    auto* piece = reinterpret_cast<Piece*>(to + i * kTileK);
    if (is_there) {
      CopyAsync16(piece, from + std::min(row + i, last) * row_bytes);
    } else {
      *piece = Piece{{0, 0, 0, 0}};
    }
  }
}

// Begins to fill a stage with tile `tile` of both operands, and ends a group of copies, an empty
// one from tile `end` on, so that groups count tiles. The rows past an operand's last repeat it.
template <int kRows>
__device__ inline void FillStage(const ProductKernelArgs& a, const Place& place, int64_t tile,
                                 int64_t end, uint16_t* stage) {
  if (tile < end) {
    const int row = threadIdx.x / kTilePieces, piece = threadIdx.x % kTilePieces;
    const int64_t at = tile * kTileK + piece * 8;  // in rows of the operands
    const bool is_there = at < a.n_in;             // n_in is a multiple of 8
    uint16_t* const to = stage + row * kTileK + SwizzledPiece(row, piece) * 8;
    CopyRows<kColumns>(a.weight + place.first_column * a.row_bytes + 2 * at, a.row_bytes, row,
                       static_cast<int>(a.n_out - 1 - place.first_column), is_there, to);
    if (kRows >= kFillRows || row < kRows) {
      const auto* x = static_cast<const std::byte*>(a.x);
      CopyRows<kRows>(x + 2 * (place.first_row * a.ld_x + at), 2 * a.ld_x, row,
                      static_cast<int>(a.n_rows - 1 - place.first_row), is_there,
                      to + Ring<kRows>::kRowsOfW);
    }
  }
  CommitCopies();
}

// Begins the products of a stage.
template <int kRows>
__device__ inline void MultiplyStage(const uint16_t* stage, bool adds, float (&sums)[kRows / 2]) {
  const uint16_t* w = stage + threadIdx.x / kGroupThreads * kGroupColumns * kTileK;
  const uint16_t* x = stage + Ring<kRows>::kRowsOfW;
  PinRegisters(sums);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kTileK; k += kStep) {
    MultiplyWarpgroup<kRows>(sums, w + k, x + k, adds || k > 0);
  }
  CommitProducts();
}

// Stores the block's finished sums.
template <int kRows>
__device__ inline void StoreSums(const ProductKernelArgs& a, const Place& place,
                                 const float (&sums)[kRows / 2]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = place.first_column + warp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      StorePair<BFloat16Format>(a, place.first_row + 8 * i + lane % 4 * 2 + j, column,
                                {sums[4 * i + j], sums[4 * i + j + 2]});
    }
  }
}

// Leaves the sums of an eighth in memory. The last block of the tile to do so gets the sums of all,
// and true.
template <int kRows>
__device__ inline bool JoinEighths(const WarpgroupArgs& args, int64_t tile,
                                   float (&sums)[kRows / 2]) {
  __shared__ bool is_last;
  float* const of_tile =
      args.sums + tile * kEighths * (kRows / 2) * kThreads + static_cast<int>(threadIdx.x);
  float* const mine = of_tile + int64_t{blockIdx.y} * (kRows / 2) * kThreads;
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) mine[i * kThreads] = sums[i];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(args.counters + tile, 1u) == kEighths - 1;
    if (is_last) args.counters[tile] = 0;  // for the next product
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] = 0;
  for (int eighth = 0; eighth < kEighths; ++eighth) {
    const float* from = of_tile + eighth * (kRows / 2) * kThreads;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) sums[i] += LoadUncached(from + i * kThreads);
  }
  return true;
}

// Split::kYes: block (x, y) has eighth y of tile x.
enum class Split { kNo, kYes };

template <int kRows, Split kSplit>
__global__ void __launch_bounds__(kThreads, Ring<kRows>::kBlocks)
    WarpgroupKernel(WarpgroupArgs args) {
  using R = Ring<kRows>;
  LK_DYNAMIC_SHARED(unsigned char, bytes);
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  auto* const stages =
      reinterpret_cast<uint16_t*>(bytes + (kTileAlignment - address % kTileAlignment));
  const ProductKernelArgs& a = args.product;
  const Place place = PlaceOfBlock<kRows>(a);
  const int first_eighth = kSplit == Split::kYes ? static_cast<int>(blockIdx.y) : 0;
  const int end_eighth = kSplit == Split::kYes ? first_eighth + 1 : kEighths;
  const int64_t first = FirstTile(a, first_eighth), end = FirstTile(a, end_eighth);
  const auto stage_of = [&](int64_t tile) {
    return stages + static_cast<int>((tile - first) % R::kStages) * R::kNumbers;
  };
  for (int64_t tile = first; tile < first + R::kAhead; ++tile) {
    FillStage<kRows>(a, place, tile, end, stage_of(tile));
  }
  float totals[kRows / 2] = {};
  int64_t tile = first;
  for (int eighth = first_eighth; eighth < end_eighth; ++eighth) {
    float sums[kRows / 2] = {};
    bool adds = false;
    for (const int64_t last = FirstTile(a, eighth + 1); tile < last; ++tile) {
      WaitCopies<R::kAhead - 1>();
      ShowTiles();
      // The stage is here, and the products of the tile before the last one are done everywhere.
      __syncthreads();
      FillStage<kRows>(a, place, tile + R::kAhead, end, stage_of(tile + R::kAhead));
      MultiplyStage<kRows>(stage_of(tile), adds, sums);
      WaitProducts<1>();
      adds = true;
    }
    WaitProducts<0>();
    PinRegisters(sums);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) totals[i] += sums[i];
  }
  if constexpr (kSplit == Split::kYes) {
    if (!JoinEighths<kRows>(args, place.tile, totals)) return;
  }
  StoreSums<kRows>(a, place, totals);
}

template <int kRows>
void LaunchRows(Device& device, const ProductKernelArgs& a, const WarpgroupSpace& space) {
  const int64_t n_tiles = (a.n_out + kColumns - 1) / kColumns * ((a.n_rows + kRows - 1) / kRows);
  const WarpgroupArgs args{a, space.sums, space.counters};
  LaunchShape shape{.blocks_x = n_tiles, .threads = kThreads, .shared_bytes = Ring<kRows>::kBytes};
  if constexpr (kRows <= 64) {
    const bool has_space =
        n_tiles <= space.n_counters && n_tiles * kEighths * (kRows / 2) * kThreads <= space.n_sums;
    if (n_tiles < kEnoughBlocks && has_space) {
      shape.blocks_y = kEighths;
      return Launch(device, WarpgroupKernel<kRows, Split::kYes>, shape, args);
    }
  }
  Launch(device, WarpgroupKernel<kRows, Split::kNo>, shape, args);
}

void LaunchFor(Device& device, const ProductKernelArgs& a, const WarpgroupSpace& space) {
  if (a.n_rows <= 0) return;
  if (a.n_rows <= 8) return LaunchRows<8>(device, a, space);
  if (a.n_rows <= 16) return LaunchRows<16>(device, a, space);
  if (a.n_rows <= 32) return LaunchRows<32>(device, a, space);
  if (a.n_rows <= 64) return LaunchRows<64>(device, a, space);
  if (a.n_rows <= 128) return LaunchRows<128>(device, a, space);
  LaunchRows<192>(device, a, space);
}

}  // namespace

void MultiplyByWarpgroups(Device& device, const ProductArgs& args, const WarpgroupSpace& space) {
  LaunchFor(device, KernelArgsOf(args), space);
}

void MultiplyGatedByWarpgroups(Device& device, const GatedProductArgs& args,
                               const WarpgroupSpace& space) {
  LaunchFor(device, KernelArgsOf(args), space);
}

}  // namespace lowkey
