#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCTS_H_

#include <compare>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/kernels/cuda/native/products/choose_product.h"
#include "engine/kernels/cuda/native/products/lt_product.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Products of one shape are computed by the same methods, which are chosen for it.
struct ProductShape {
  int64_t n_out, n_in;
  StorageType type;
  ProductOutput output;
  auto operator<=>(const ProductShape&) const = default;
};

// Products with a device's weights. The methods of a shape give a row the same bits for every
// number of rows. (Rows at addresses that a method does not take, which is a matter of place and
// not of number, go to the plain kernel.)
class Products {
 public:
  // has_warpgroups: the device computes MultiplyByWarpgroups (products.h).
  static absl::StatusOr<std::unique_ptr<Products>> Create(Device& device, cudaStream_t stream,
                                                          bool has_warpgroups);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Chooses the methods of a weight's shape, before the first product, unless the weight is of 8
  // bits, which only our own kernels multiply; waits. The environment variable LOWKEY_CUDA_PRODUCTS
  // chooses instead, for tests and measurements: "plain", "tiles" or "warpgroups" our own kernels,
  // "cublas" the best method of cuBLASLt where there is one, "fastest" for each number of rows the
  // method of cuBLASLt that FastestMethod finds when that number first comes up, which breaks the
  // promise above.
  absl::Status Choose(const DeviceWeight& weight);
  std::vector<ProductChoice> Choices() const;
  absl::Status Multiply(const ProductArgs& args);
  absl::Status MultiplyGated(const GatedProductArgs& args);

 private:
  Products(Device& device, bool has_warpgroups)
      : device_(device), has_warpgroups_(has_warpgroups) {}
  absl::Status Choose(const DeviceWeight& weight, ProductOutput output);
  // Returns how a product is computed.
  absl::StatusOr<ProductMethod> MethodFor(const ProductArgs& args);
  absl::Status MultiplyBy(const ProductArgs& args, const ProductMethod& method);

  // Returns the workspace: work that shares it is queued one piece after another.
  WarpgroupSpace space();

  Device& device_;
  const bool has_warpgroups_;
  Buffer workspace_, counters_;
  LtContext context_;
  std::map<ProductShape, ChosenProduct> methods_;
  std::map<std::pair<ProductShape, int64_t>, ProductMethod> fastest_;  // by number of rows too
  MethodsToTry wanted_ = MethodsToTry::kAll;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCTS_H_
