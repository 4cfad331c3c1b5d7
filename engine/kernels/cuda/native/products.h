#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_H_

#include <compare>
#include <map>
#include <memory>

#include "engine/kernels/cuda/native/choose_product.h"
#include "engine/kernels/cuda/native/lt_product.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

struct WeightShape {
  int64_t n_out, n_in;
  StorageType type;
  auto operator<=>(const WeightShape&) const = default;
};

// Products with a device's weights. Each shape of a weight is computed in one way, whatever the
// number of rows, so that a row's bits do not depend on it. (Rows at addresses that the way does
// not take, which is a matter of where they lie and not of how many there are, go to the plain
// kernel.)
class Products {
 public:
  static absl::StatusOr<std::unique_ptr<Products>> Create(Device& device, cudaStream_t stream);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Before the first product with a weight of its shape, unless that is of 8 bits; waits. The
  // environment variable
  // LOWKEY_CUDA_PRODUCTS chooses instead, for tests and measurements: "plain" or "tiles" our own
  // kernels, "cublas" the best way of cuBLASLt where there is one. Weights of 8 bits are multiplied
  // by our own kernels in any case.
  absl::Status Choose(const DeviceWeight& weight);
  absl::Status Multiply(const ProductArgs& args);

 private:
  explicit Products(Device& device) : device_(device) {}
  absl::Status MultiplyBy(const ProductArgs& args, const ProductWay& way);

  Device& device_;
  Buffer workspace_;
  LtContext context_;
  std::map<WeightShape, ProductWay> ways_;
  WaysToTry wanted_ = WaysToTry::kAll;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_H_
