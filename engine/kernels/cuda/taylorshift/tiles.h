#ifndef LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TILES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TILES_H_

// The parts of TaylorShift's kernels for tensor cores: numbers in two parts, a warp's rows, pages
// in shared memory. Included by .cu files.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/grid/mma.h"
#include "engine/kernels/cuda/taylorshift/views.h"

namespace lowkey::taylor {

// The warps of a block: each has 16 rows and a part of the columns.
template <int kHeadDim, int kRowWarps, int kColumnWarps>
struct Shape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kThreads = kRowWarps * kColumnWarps * kWarp;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kTiles = kHeadDim / 8 / kColumnWarps;  // tiles of 8 columns per warp

  __device__ static int FirstRow() { return WarpIndex() / kColumnWarps * 16; }
  __device__ static int FirstColumn() { return WarpIndex() % kColumnWarps * 8 * kTiles; }
};

struct alignas(8) FloatPair {
  float x, y;
};

// ---------------------------------------------------------------- numbers in two parts

__device__ __forceinline__ float LowOf(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// Two numbers; each is the sum of its parts in `major` and in `minor`.
struct SplitPair {
  uint32_t major, minor;
};

__device__ __forceinline__ SplitPair Split(float low, float high) {
  const uint32_t major = PackBFloat16(low, high);
  return {major, PackBFloat16(low - LowOf(major), high - HighOf(major))};
}

// A tile of A (mma.h): word i has row half i % 2 and column half i / 2.
struct SplitTile {
  uint32_t major[4], minor[4];

  __device__ __forceinline__ void Set(int i, SplitPair pair) {
    major[i] = pair.major;
    minor[i] = pair.minor;
  }
};

// The sums of a warp's 16 rows.
template <int kTiles>
struct RowSums {
  float x[kTiles][4] = {};
  float weights[4] = {};  // a tile whose first column is the weights

  __device__ __forceinline__ void Add(const RowSums& other) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] += other.x[i][j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) weights[j] += other.weights[j];
  }
};

// Adds A values to sums, where values are 16 rows of a page, `stride` apart.
template <int kTiles>
__device__ __forceinline__ void AddValues(const SplitTile& a, const uint16_t* values, int stride,
                                          RowSums<kTiles>& sums) {
  const uint16_t* row = values + LaneIndex() % 16 * stride + LaneIndex() / 16 * 8;
#pragma unroll
  for (int i = 0; i < kTiles; i += 2) {
    uint32_t b[4];
    LoadTilesTransposed(b, row + 8 * i);
    MultiplyTiles(sums.x[i], a.major, b[0], b[1]);
    MultiplyTiles(sums.x[i + 1], a.major, b[2], b[3]);
    MultiplyTiles(sums.x[i], a.minor, b[0], b[1]);
    MultiplyTiles(sums.x[i + 1], a.minor, b[2], b[3]);
  }
}

// ---------------------------------------------------------------- pages in shared memory

// Rows lie an odd number of 16 bytes apart: eight rows of a matrix are in different banks.
template <int kDim>
struct PagePlanes {
  static constexpr int kKeyStride = kPage + 8;
  static constexpr int kValueStride = kDim + 8;
  static constexpr int kValues = (kDim + 1) * kKeyStride;  // after keys and a row of ones
  static constexpr int kNumbers = kValues + kPage * kValueStride;
};

// Begins to copy a page to `to`. Values from token `end` on become 0, because the memory there may
// hold NaN.
template <typename Shape>
__device__ void BeginPage(const Tile<uint16_t>& tile, int end, uint16_t* to) {
  using Planes = PagePlanes<Shape::kDim>;
  constexpr int kChunks = Shape::kDim / 8;  // pieces of 16 bytes
  for (int i = Tid(); i < Shape::kDim * (kPage / 8); i += Shape::kThreads) {
    CopyAsync16(to + i / (kPage / 8) * Planes::kKeyStride + i % (kPage / 8) * 8, tile.keys + i * 8);
  }
  uint16_t* values = to + Planes::kValues;
  for (int i = Tid(); i < kPage * kChunks; i += Shape::kThreads) {
    uint16_t* at = values + i / kChunks * Planes::kValueStride + i % kChunks * 8;
    if (i / kChunks < end) {
      CopyAsync16(at, tile.values + i * 8);
    } else {
      *reinterpret_cast<Floats<4>*>(at) = {};
    }
  }
}

}  // namespace lowkey::taylor

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TILES_H_
