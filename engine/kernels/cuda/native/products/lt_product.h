#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_LT_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_LT_PRODUCT_H_

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// The resources of cuBLASLt: its handle, the stream, memory to work in.
struct LtContext {
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  absl::Span<std::byte> workspace;
};

// SumOrder says whether the sum of an element may be split, and its parts added in another order.
enum class SumOrder { kInOneGo, kAny };

// Returns the number of a method's algorithm in cuBLASLt.
int32_t AlgorithmOf(const cublasLtMatmulAlgo_t& method);

// A product as cuBLASLt describes it, by columns: y^T [n_out, n_rows] = W x^T, where our W [n_out,
// n_in] is its [n_in, n_out], transposed. Sums are fp32 (CUBLAS_COMPUTE_32F; fp32 weights are not
// rounded to TF32). The result goes to args.rounded, in bf16, where that is set, and else to
// args.y; with a bias only args.y can be written.
class LtProduct {
 public:
  // Returns whether cuBLASLt can take the addresses: all are multiples of 16 bytes.
  static bool Takes(const ProductArgs& args);

  explicit LtProduct(const ProductArgs& args);

  // Returns methods, the likely fastest first.
  std::vector<cublasLtMatmulAlgo_t> Methods(const LtContext& context, SumOrder order) const;
  // Returns whether the method can run in the workspace.
  bool CanRun(const LtContext& context, const cublasLtMatmulAlgo_t& method) const;
  cublasStatus_t Run(const LtContext& context, const cublasLtMatmulAlgo_t& method) const;

 private:
  ProductArgs args_;
  // cuBLASLt's functions take all of these as mutable.
  mutable cublasLtMatmulDescOpaque_t product_{};
  mutable cublasLtMatrixLayoutOpaque_t w_{}, x_{}, y_{};
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_LT_PRODUCT_H_
