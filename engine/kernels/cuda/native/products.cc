#include "engine/kernels/cuda/native/products.h"

#include "absl/memory/memory.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products.h"

namespace lowkey {
namespace {

// cuBLAS asks for 32 MiB on Hopper; this much also fills the largest L2 cache (choose_product.cc).
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(Device& device, cudaStream_t stream) {
  auto made = absl::WrapUnique(new Products(device));
  LK_ASSIGN_OR_RETURN(made->workspace_, Buffer::Allocate(kWorkspaceBytes, &device));
  made->context_.stream = stream;
  made->context_.workspace = {made->workspace_.data(), kWorkspaceBytes};
  LK_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&made->context_.handle), "cuBLASLt"));
  return made;
}

Products::~Products() {
  if (context_.handle != nullptr) (void)cublasLtDestroy(context_.handle);
}

absl::Status Products::Choose(const DeviceWeight& weight) {
  const Shape shape = ShapeOf(weight);
  if (ways_.contains(shape)) return absl::OkStatus();
  ProductWay way;
  // What the addresses of the trial's rows are like follows from the shape alone.
  if (LtProduct::Takes({.weight = &weight, .ld_x = shape.n_in, .ld_y = shape.n_out})) {
    LK_ASSIGN_OR_RETURN(way,
                        ChooseProductWay(device_, context_, weight,
                                         [this](const ProductArgs& args, const ProductWay& tried) {
                                           return MultiplyBy(args, tried);
                                         }));
  }
  ways_.emplace(shape, way);
  return device_.status();
}

absl::Status Products::MultiplyBy(const ProductArgs& args, const ProductWay& way) {
  if (way.has_value() && LtProduct::Takes(args)) {
    return CublasStatus(LtProduct(args).Run(context_, *way), "product");
  }
  MultiplyPlainly(device_, args);
  return absl::OkStatus();
}

absl::Status Products::Multiply(const ProductArgs& args) {
  const auto way = ways_.find(ShapeOf(*args.weight));
  LK_CHECK(way != ways_.end());  // else another device's weight
  return MultiplyBy(args, way->second);
}

}  // namespace lowkey
