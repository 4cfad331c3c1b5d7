#include "engine/kernels/cuda/native/products.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <tuple>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// cuBLAS asks for 32 MiB on Hopper; this much also fills its L2 cache (choose_product.cc).
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

WeightShape ShapeOf(const DeviceWeight& w) { return {w.n_out(), w.n_in(), w.type()}; }

// The methods chosen in this process. Devices choose one after another.
struct Chosen {
  std::mutex mutex;
  std::map<std::tuple<std::string, MethodsToTry, WeightShape>, ProductMethod> methods;
};

Chosen& ChosenInProcess() {
  static auto* const chosen = new Chosen;
  return *chosen;
}

absl::StatusOr<MethodsToTry> Wanted() {
  const char* variable = std::getenv("LOWKEY_CUDA_PRODUCTS");
  const absl::string_view wanted = variable == nullptr ? "" : variable;
  if (wanted.empty()) return MethodsToTry::kAll;
  if (wanted == "plain") return MethodsToTry::kPlain;
  if (wanted == "tiles") return MethodsToTry::kTiles;
  if (wanted == "cublas") return MethodsToTry::kCublas;
  return absl::InvalidArgumentError(
      absl::StrCat("LOWKEY_CUDA_PRODUCTS=", wanted, ", expected plain, tiles or cublas"));
}

bool IsTiles(const ProductMethod& method) {
  const auto* own = std::get_if<OwnKernel>(&method);
  return own != nullptr && *own == OwnKernel::kTiles;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(Device& device, cudaStream_t stream) {
  auto made = absl::WrapUnique(new Products(device));
  LK_ASSIGN_OR_RETURN(made->wanted_, Wanted());
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
  const WeightShape shape = ShapeOf(weight);
  if (methods_.contains(shape)) return absl::OkStatus();
  Chosen& chosen = ChosenInProcess();
  const std::lock_guard lock(chosen.mutex);
  const auto key = std::make_tuple(device_.name(), wanted_, shape);
  if (!chosen.methods.contains(key)) {
    const auto multiply = [this](const ProductArgs& args, const ProductMethod& tried) {
      return MultiplyBy(args, tried);
    };
    LK_ASSIGN_OR_RETURN(const ProductMethod method,
                        ChooseProductMethod(device_, context_, weight, wanted_, multiply));
    LK_RETURN_IF_ERROR(device_.status());
    chosen.methods.emplace(key, method);
  }
  methods_.emplace(shape, chosen.methods.at(key));
  return device_.status();
}

absl::Status Products::MultiplyBy(const ProductArgs& args, const ProductMethod& method) {
  if (const auto* lt = std::get_if<cublasLtMatmulAlgo_t>(&method); lt && LtProduct::Takes(args)) {
    return CublasStatus(LtProduct(args).Run(context_, *lt), "product");
  }
  if (IsTiles(method) && TilesTake(args)) {
    MultiplyByTiles(device_, args);
  } else {
    MultiplyPlainly(device_, args);
  }
  return absl::OkStatus();
}

ProductMethod Products::MethodFor(const DeviceWeight& weight) const {
  if (IsNarrow(weight.type())) {  // only our own kernels read these
    return wanted_ == MethodsToTry::kPlain ? OwnKernel::kPlain : OwnKernel::kTiles;
  }
  const auto method = methods_.find(ShapeOf(weight));
  LK_CHECK(method != methods_.end());  // else the weight is another device's
  return method->second;
}

absl::Status Products::Multiply(const ProductArgs& args) {
  return MultiplyBy(args, MethodFor(*args.weight));
}

absl::Status Products::MultiplyGated(const GatedProductArgs& args) {
  const ProductMethod method = MethodFor(*args.product.weight);
  if (IsTiles(method) && TilesTake(args.product)) {
    MultiplyGatedByTiles(device_, args);
    return absl::OkStatus();
  }
  absl::Status status;
  GateAfter(device_, args,
            [&](const ProductArgs& product) { status = MultiplyBy(product, method); });
  return status;
}

}  // namespace lowkey
