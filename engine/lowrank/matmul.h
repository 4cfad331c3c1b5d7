#ifndef LOWKEY_ENGINE_LOWRANK_MATMUL_H_
#define LOWKEY_ENGINE_LOWRANK_MATMUL_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/kernels.h"

namespace lowkey {

// Element (i, j) of an operand is data[i * row_stride + j * col_stride]: a transpose is a swap of
// the strides.
struct MatmulOperand {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

struct MatmulOptions {
  // Adds product * alpha to c instead of overwriting c.
  bool accumulate = false;
  float alpha = 1.0f;
  // Only the elements on and below the diagonal of c are defined afterwards (a symmetric product),
  // for half the work.
  bool lower_only = false;
  const KernelTable* kernels = &Kernels();
};

struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
};

// A row-major matrix; row i starts at data + i * stride.
struct MatmulOutput {
  float* data = nullptr;
  int64_t stride = 0;
};

// Computes c [m, n] from a [m, k] times b [k, n] in fp32 on the calling thread. c must not overlap
// a or b. `pack` is scratch that keeps its memory between calls. The same operands give the same
// bits with one kernel table, and avx2 the same as avx512.
void Matmul(const MatmulShape& shape, const MatmulOperand& a, const MatmulOperand& b,
            const MatmulOptions& options, const MatmulOutput& c, std::vector<float>& pack);

// Copies the lower triangle of c [n, n] (stride n) onto the upper one.
void MirrorLower(int64_t n, float* c);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_MATMUL_H_
