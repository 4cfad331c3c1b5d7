#ifndef LOWKEY_ENGINE_LOWRANK_MATMUL_H_
#define LOWKEY_ENGINE_LOWRANK_MATMUL_H_

#include <cstdint>
#include <vector>

namespace lowkey {

// Element (i, j) of an operand is data[i * row_stride + j * col_stride]: a transpose is a swap of
// the strides.
struct MatmulOperand {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

struct MatmulOptions {
  // c += product * alpha instead of c = product * alpha.
  bool accumulate = false;
  float alpha = 1.0f;
  // Only the elements on and below the diagonal of c are defined afterwards (a symmetric product);
  // half the work.
  bool lower_only = false;
};

struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
};

// c [m, n], row-major with `c_stride`, from a [m, k] times b [k, n], in fp32 on the calling thread.
// c must not overlap a or b. `pack` is scratch that keeps its memory between calls. The best of the
// machine's vector units is used; the same operands give the same bits on one machine.
struct MatmulOutput {
  float* data = nullptr;
  int64_t stride = 0;
};
void Matmul(const MatmulShape& shape, const MatmulOperand& a, const MatmulOperand& b,
            const MatmulOptions& options, const MatmulOutput& c, std::vector<float>& pack);

// Copies the lower triangle of c [n, n] (stride n) onto the upper one.
void MirrorLower(int64_t n, float* c);

// Which implementation Matmul uses.
enum class MatmulKernel { kPortable, kAvx2, kAvx512 };
bool MatmulKernelSupported(MatmulKernel kernel);

// For tests and measurements: from now on every Matmul of this thread uses `kernel`, which must be
// supported.
void UseMatmulKernelForTest(MatmulKernel kernel);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_MATMUL_H_
