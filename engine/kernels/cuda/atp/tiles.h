#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_TILES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_TILES_H_

// Tiles of 64 vectors in shared memory, and the products of a warp's rows with them. Included by
// .cu files.

#include "engine/kernels/cuda/atp/rows.h"
#include "engine/kernels/cuda/atp/views.h"

namespace lowkey::atp {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr float kHidden = -INFINITY;

struct alignas(16) Four {
  float x[4];
};

// Takes the numbers of kR neighboring rows.
template <int kR>
__device__ __forceinline__ void TakeRows(const float* from, float (&to)[kR]) {
  if constexpr (kR == 4) {
    const Four four = *reinterpret_cast<const Four*>(from);
    for (int r = 0; r < 4; ++r) to[r] = four.x[r];
  } else {
    for (int r = 0; r < kR; ++r) to[r] = from[r];
  }
}

// Loads up to 64 vectors, row_of(i) (rows.h), of `width` numbers (even, at most 32 kW), as floats
// to tile + i * stride, and zeros beyond. Has barriers at its begin and end.
template <int kW, typename RowOf>
__device__ __forceinline__ void LoadTile(float* tile, int stride, int width, int n, RowOf row_of) {
  __syncthreads();
  constexpr int kPairs = 16 * kW;
  for (int i = threadIdx.x; i < kPage * kPairs; i += kThreads) {
    const int vector = i / kPairs, column = i % kPairs * 2;
    float a = 0, b = 0;
    if (vector < n && column < width) TakePair(row_of(vector), column, a, b);
    tile[vector * stride + column] = a;
    tile[vector * stride + column + 1] = b;
  }
  __syncthreads();
}

// sums[r][k] += row r of x (columns at x + i * ld_x) times vector lane + 32 k of the tile.
template <int kR>
__device__ __forceinline__ void Dot(const float* x, int ld_x, const float* tile, int stride,
                                    int width, float (&sums)[kR][2]) {
  const int lane = threadIdx.x % kWarp;
  const float *first = tile + lane * stride, *second = first + kWarp * stride;
  for (int c = 0; c < width; ++c) {
    float rows[kR];
    TakeRows<kR>(x + c * ld_x, rows);
    for (int r = 0; r < kR; ++r) {
      sums[r][0] = fmaf(rows[r], first[c], sums[r][0]);
      sums[r][1] = fmaf(rows[r], second[c], sums[r][1]);
    }
  }
}

// sums[r][k] += number lane + 32 k of the tile's first n vectors, weighted by row r (whose weight
// of vector i is at x + i * ld_x).
template <int kR, int kW>
__device__ __forceinline__ void Mix(const float* x, int ld_x, const float* tile, int stride, int n,
                                    float (&sums)[kR][kW]) {
  const int lane = threadIdx.x % kWarp;
  for (int i = 0; i < n; ++i) {
    float rows[kR];
    TakeRows<kR>(x + i * ld_x, rows);
    for (int k = 0; k < kW; ++k) {
      const float y = tile[i * stride + lane + kWarp * k];
      for (int r = 0; r < kR; ++r) sums[r][k] = fmaf(rows[r], y, sums[r][k]);
    }
  }
}

// A running softmax: its sum of values, kD numbers a lane, under weights exp(score - max).
template <int kD>
struct Sum {
  float max = kHidden, weights = 0;
  float values[kD] = {};

  // Adds a later part.
  __device__ __forceinline__ void Fold(const Sum& part) {
    if (part.max == kHidden) return;
    if (max == kHidden) {
      *this = part;
      return;
    }
    const float top = fmaxf(max, part.max);
    const float mine = expf(max - top), other = expf(part.max - top);
    weights = fmaf(weights, mine, part.weights * other);
    for (int k = 0; k < kD; ++k) values[k] = fmaf(values[k], mine, part.values[k] * other);
    max = top;
  }
};

}  // namespace lowkey::atp

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_TILES_H_
