#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCT_TRIAL_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCT_TRIAL_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/kernels/cuda/native/products/lt_product.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// ProductMethod says how products with a weight are computed: by a method of cuBLASLt, or by one of
// our own kernels: warpgroups, tiles, the plain kernel, or the kernel for few rows whose sums
// follow the order of k (products.h).
enum class OwnKernel { kPlain, kTiles, kWarpgroups, kInOrder };
using ProductMethod = std::variant<OwnKernel, cublasLtMatmulAlgo_t>;

// kFastest: for each number of rows the fastest method of cuBLASLt, whatever it does to bits.
enum class MethodsToTry { kAll, kPlain, kTiles, kWarpgroups, kCublas, kFastest };

enum class ProductOutput { kFloat, kRounded };  // ProductArgs::y or ProductArgs::rounded

// Returns "tiles", "cublasLt algorithm 66" and so on.
std::string NameOf(const ProductMethod& method);

// Queues a product by a method.
using MultiplyBy = absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)>;

// Returns the median of some times of a product, infinite where it does not run.
absl::StatusOr<double> MedianMicroseconds(const LtContext& context, const ProductArgs& args,
                                          const ProductMethod& method, MultiplyBy multiply);

// ProductLoad says how many rows steps have, and how often: most steps generate.
struct ProductLoad {
  int64_t n_rows;
  double weight;
};

// Numbers of the tried rows, each computed alone.
using RowBits = std::vector<std::vector<float>>;
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Products of a weight with random rows.
class ProductTrial {
 public:
  ProductTrial(Device& device, const LtContext& context, const DeviceWeight& weight,
               ProductOutput output, MultiplyBy multiply)
      : device_(device), context_(context), weight_(weight), output_(output), multiply_(multiply) {}

  // Draws the rows, before all else. RESOURCE_EXHAUSTED where there is no memory for them.
  absl::Status Prepare();
  // Returns the loads that there is memory for.
  absl::Span<const ProductLoad> loads() const;
  // Returns our own kernels that take the weight and any number of rows.
  std::vector<ProductMethod> OwnMethods(MethodsToTry wanted, bool has_warpgroups) const;
  // Returns whether OwnKernel::kInOrder takes the weight.
  bool TakesInOrder() const;
  // Returns the methods that cuBLASLt proposes for that many rows, and that run with every number
  // of rows, with and without a bias.
  std::vector<ProductMethod> CublasMethods(int64_t n_rows) const;
  // Returns the time of a product; infinite where the method does not run.
  absl::StatusOr<double> Time(int64_t n_rows, const ProductMethod& method);
  absl::StatusOr<RowBits> BitsAlone(const ProductMethod& method);
  // Returns one row's numbers, added to another's where results are fp32.
  absl::StatusOr<std::vector<float>> Accumulated(const ProductMethod& method);
  // Returns whether tried rows have the bits among others, in products of more than fewer_rows
  // rows, up to n_rows.
  absl::StatusOr<bool> KeepsBits(int64_t fewer_rows, int64_t n_rows, const ProductMethod& method,
                                 const RowBits& bits);
  // Returns whether rows of products of few and of many rows, by the methods that method_for gives
  // for so many rows, are close to the plain kernel's.
  absl::StatusOr<bool> IsRight(absl::FunctionRef<const ProductMethod&(int64_t)> method_for);

 private:
  ProductArgs Args(int64_t first_row, int64_t n_rows) const;
  // Returns row `row` of the last product.
  absl::StatusOr<std::vector<float>> ReadRow(int64_t row);
  // Returns row `row` of the product of rows [0, n_rows).
  absl::StatusOr<std::vector<float>> RowOf(int64_t row, int64_t n_rows,
                                           const ProductMethod& method);
  bool RunsAlways(const cublasLtMatmulAlgo_t& method) const;
  Device& device_;
  const LtContext& context_;
  const DeviceWeight& weight_;
  const ProductOutput output_;
  const MultiplyBy multiply_;
  int64_t most_rows_ = 0;
  Buffer x_, y_, rounded_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_PRODUCT_TRIAL_H_
