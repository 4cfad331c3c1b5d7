#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_ROWS_H_

// This file has what products by tensor cores share: how they read rows, and what becomes of sums.

#include "engine/kernels/cuda/products/gate.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/cuda/products/weight_formats.h"

namespace lowkey {

// Parts of n_in whose sums are computed each by itself and then added in order.
inline constexpr int kEighths = 8;

// Maps a number past the last to the last; the result for such a number is not stored.
__device__ inline int64_t AtMost(int64_t i, int64_t n) { return i < n ? i : n - 1; }

// Returns row i of x.
__device__ inline const uint16_t* RowOf(const ProductKernelArgs& a, int64_t i) {
  return static_cast<const uint16_t*>(a.x) + AtMost(i, a.n_rows) * a.ld_x;
}

// Returns a column's number of the product from the sum over k.
template <typename Format>
__device__ inline float Finished(const ProductKernelArgs& a, int64_t column, float sum) {
  const float bias = a.bias == nullptr ? 0.0f : a.bias[column];
  if constexpr (Format::kScalesRows) return fmaf(BFloat16ToFloat(a.scales[column]), sum, bias);
  return a.bias == nullptr ? sum : sum + bias;
}

// Stores a number of the product in `rounded` where that is set, else in y.
__device__ inline void StoreNumber(const ProductKernelArgs& a, int64_t row, int64_t column,
                                   float number) {
  const int64_t at = row * a.ld_y + column;
  if (a.rounded != nullptr) {
    a.rounded[at] = FromFloat<uint16_t>(number);
  } else {
    a.y[at] = a.into == GemmArgs::Into::kAccumulate ? a.y[at] + number : number;
  }
}

// Stores the sums of columns `column` and `column` + 8; the first is one of the first 8 of 16.
template <typename Format>
__device__ inline void StorePair(const ProductKernelArgs& a, int64_t row, int64_t column,
                                 const float (&sums)[2]) {
  if (row >= a.n_rows) return;
  if (a.gated != nullptr) {
    const int64_t channel = column / 16 * kGatedGroup + column % 16;
    if (channel >= a.n_channels) return;
    const float gate = Finished<Format>(a, column, sums[0]);
    const float up = Finished<Format>(a, column + kGatedGroup, sums[1]);
    a.gated[row * a.n_channels + channel] = FromFloat<uint16_t>(SiluTimes(gate, up));
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (column + 8 * i >= a.n_out) return;
    StoreNumber(a, row, column + 8 * i, Finished<Format>(a, column + 8 * i, sums[i]));
  }
}

// Begins to copy piece `at` of a row to shared memory, or stores zeros past the row's end.
__device__ inline void CopyPiece(Piece& to, const void* row, int64_t at, int64_t row_bytes) {
  if (at * int64_t{sizeof(Piece)} < row_bytes) {
    CopyAsync16(&to, static_cast<const Piece*>(row) + at);
  } else {
    to = Piece{{0, 0, 0, 0}};
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_ROWS_H_
