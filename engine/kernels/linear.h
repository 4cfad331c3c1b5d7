#ifndef LOWKEY_ENGINE_KERNELS_LINEAR_H_
#define LOWKEY_ENGINE_KERNELS_LINEAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/packed_weight.h"

namespace lowkey {

// LinearRows are the rows x [n_rows, n_in] that a weight multiplies. Row i is at x + i * ldx.
struct LinearRows {
  const float* x = nullptr;
  int64_t ldx = 0;
  bool is_packed = false;  // GatedLinear has packed them for the weight, in the same memory
};

// Computes y [n_rows, n_out_padded] = x W^T; row i of y is at y + i * ldy, ldy >= n_out_padded. A
// row's bits do not depend on n_rows or on the pool's size.
void Linear(const PackedWeight& w, const LinearRows& x, int64_t n_rows, float* y, int64_t ldy,
            ThreadPool& pool);

// Computes y [n_rows, n_out] += x W^T + bias; an empty bias is none. `scratch` has n_rows *
// RowStride(n_out_padded) floats.
void AddLinear(const PackedWeight& w, absl::Span<const float> bias, const LinearRows& x,
               int64_t n_rows, float* y, int64_t ldy, float* scratch, ThreadPool& pool);

// Computes y [n_rows, n_out / 2] = silu(a) * b, where a and b are the two halves of the columns of
// x W^T + bias; an empty bias is none. Row i of y is at y + i * ldy, ldy >= n_out_padded: what lies
// behind its n_out / 2 numbers is overwritten. The returned rows are y; where `next` is given, they
// are for it alone, perhaps packed.
LinearRows GatedLinear(const PackedWeight& w, absl::Span<const float> bias, const LinearRows& x,
                       int64_t n_rows, const PackedWeight* next, float* y, int64_t ldy,
                       ThreadPool& pool);

// Returns a leading dimension for rows of n floats. Rows a multiple of 2 KiB apart would crowd a
// few of the cache's sets (512 rows of 16 KiB: 66% of peak, 77% a line further apart).
inline int64_t RowStride(int64_t n) { return n % 512 == 0 ? n + 16 : n; }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_LINEAR_H_
