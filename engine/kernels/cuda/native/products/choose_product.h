#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/kernels/cuda/native/products/lt_product.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// How products with a weight are computed: by a method of cuBLASLt, or by our own warpgroups, tiles
// or plain kernel (products.h).
enum class OwnKernel { kPlain, kTiles, kWarpgroups };
using ProductMethod = std::variant<OwnKernel, cublasLtMatmulAlgo_t>;

// kFastest: for each number of rows the fastest method of cuBLASLt, whatever it does to bits.
enum class MethodsToTry { kAll, kPlain, kTiles, kWarpgroups, kCublas, kFastest };

// "tiles", "cublasLt algorithm 66" and so on.
std::string NameOf(const ProductMethod& method);

struct ChosenProduct {
  ProductMethod method = OwnKernel::kPlain;
  std::vector<ProductChoice::Timing> timings;
  std::string refused;  // ProductChoice has it
};

// Returns the method that is fastest for steps of one row, of some and of many rows together, among
// those that compute a row's bits whatever rows stand beside it, and numbers close to the plain
// kernel's; trials find all of this. Another process
// may find another method where two differ by about a tenth, and compute other bits.
//
// Equal bits have a price: a method of cuBLASLt that is good for many rows takes a product of one
// row with too few blocks to read the weight at the memory's speed, because it may not cut n_in;
// our tiles, cut for one row, reach about half of the tensor cores' speed for many.
//
// `multiply` queues a product by a method. RESOURCE_EXHAUSTED where there is no memory for the
// trial's rows (512).
absl::StatusOr<ChosenProduct> ChooseProductMethod(
    Device& device, const LtContext& context, const DeviceWeight& weight, MethodsToTry wanted,
    bool has_warpgroups,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)> multiply);

// Returns the method of cuBLASLt that is fastest for these very arguments, whose y it overwrites;
// the plain kernel where there is none. It may split sums, so that a row's bits depend on the number
// of rows: for measurements alone. `multiply` is as above.
absl::StatusOr<ProductMethod> FastestMethod(
    const LtContext& context, ProductArgs args,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)> multiply);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_
