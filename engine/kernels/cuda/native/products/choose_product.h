#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/cuda/native/products/product_trial.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Methods by the number of rows: each takes up to so many, the last any number.
struct ChosenProduct {
  struct Range {
    int64_t most_rows;
    ProductMethod method;
    double microseconds;  // of a product of most_rows rows
  };
  std::vector<Range> ranges;
  std::string refused;  // ProductChoice has it

  const ProductMethod& For(int64_t n_rows) const;
};

// Returns "tiles", "cublasLt by 5 methods" and so on.
std::string NameOf(const ChosenProduct& product);

// Returns the methods that are fastest for steps of one row up to many, each weighed by how often
// it comes up. All of them compute the same bits of a row, whatever rows stand beside it, and
// numbers close to the plain kernel's. Trials find all of this. Another process may find methods of
// other bits where two kinds differ by about a tenth.
//
// Methods of cuBLASLt that do not cut n_in add up a product in the same order, whatever their tiles
// are, so that there is a good one of the same bits for most numbers of rows. Only a narrow weight
// and few rows give them too few blocks to read it at the memory's speed.
//
// RESOURCE_EXHAUSTED where there is no memory for the trial's rows (2,048, or as many as have
// results of 256 MiB and of a quarter of what is free).
absl::StatusOr<ChosenProduct> ChooseProductMethods(Device& device, const LtContext& context,
                                                   const DeviceWeight& weight, ProductOutput output,
                                                   MethodsToTry wanted, bool has_warpgroups,
                                                   MultiplyBy multiply);

// Returns the method of cuBLASLt that is fastest for these very arguments, whose y it overwrites;
// the plain kernel where there is none. It may split sums, so that a row's bits depend on the
// number of rows, and serves measurements alone.
absl::StatusOr<ProductMethod> FastestMethod(const LtContext& context, ProductArgs args,
                                            MultiplyBy multiply);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PRODUCTS_CHOOSE_PRODUCT_H_
