#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_

#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/kernels/cuda/native/lt_product.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// How products with a weight are computed: by one of cuBLASLt's ways, or by our own tiles
// (products.h) or plain kernel.
enum class OwnKernel { kPlain, kTiles };
using ProductWay = std::variant<OwnKernel, cublasLtMatmulAlgo_t>;

enum class WaysToTry { kAll, kPlain, kTiles, kCublas };

// The way that is fastest for steps of one row, of some and of many together, and that computes a
// row's bits whatever rows stand beside it; both are found by trying. Another process may find
// another way where two of them differ by about a tenth, and compute other bits.
//
// The price of the same bits everywhere: a way of cuBLASLt's that is good for many rows takes a
// product of one row with too few blocks to read the weight at the memory's speed, for it may not
// cut n_in among them; our tiles, cut for one row, are at about half of what the tensor cores can
// do for many.
//
// `multiply` queues a product by a way. RESOURCE_EXHAUSTED where there is no memory for the trial's
// rows (512).
absl::StatusOr<ProductWay> ChooseProductWay(
    Device& device, const LtContext& context, const DeviceWeight& weight, WaysToTry wanted,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductWay&)> multiply);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_CHOOSE_PRODUCT_H_
