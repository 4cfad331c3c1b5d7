#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_LT_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_LT_PRODUCT_H_

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// What cuBLASLt computes with: its handle, the stream, memory for it to use.
struct LtContext {
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  absl::Span<std::byte> workspace;
};

// A product as cuBLASLt describes it. It counts by columns: y^T [n_out, n_rows] = W x^T, where what
// we store as W [n_out, n_in] is its [n_in, n_out], transposed. Sums are fp32 (CUBLAS_COMPUTE_32F;
// fp32 weights are not rounded to TF32).
class LtProduct {
 public:
  // Whether its kernels can take the addresses: everything at multiples of 16 bytes.
  static bool Takes(const ProductArgs& args);

  explicit LtProduct(const ProductArgs& args);

  // Ways to compute it that sum every element's products in one go, the likely fastest first.
  std::vector<cublasLtMatmulAlgo_t> Ways(const LtContext& context) const;
  // Whether it can be computed that way in the workspace.
  bool CanRun(const LtContext& context, const cublasLtMatmulAlgo_t& way) const;
  cublasStatus_t Run(const LtContext& context, const cublasLtMatmulAlgo_t& way) const;

 private:
  ProductArgs args_;
  // cuBLASLt's functions take all of these as mutable.
  mutable cublasLtMatmulDescOpaque_t product_{};
  mutable cublasLtMatrixLayoutOpaque_t w_{}, x_{}, y_{};
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_LT_PRODUCT_H_
