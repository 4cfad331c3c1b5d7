#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/kernels/cuda/native/lt_product.h"
#include "engine/kernels/device.h"

namespace lowkey {

// How products with a weight are computed: one of cuBLASLt's ways, or by our own kernel.
using ProductWay = std::optional<cublasLtMatmulAlgo_t>;

// The way that is fastest for steps of one row, of some and of many together, and that computes a
// row's bits whatever rows stand beside it; both are found by trying. The price of the same bits
// everywhere is that a product of one row cannot be cut along n_in among more of the device, as it
// would be by itself.
//
// `multiply` queues a product by a way. RESOURCE_EXHAUSTED where there is no memory for the trial's
// rows (512).
absl::StatusOr<ProductWay> ChooseProductWay(
    Device& device, const LtContext& context, const DeviceWeight& weight,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductWay&)> multiply);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_
