#include "engine/kernels/cuda/native/products/products.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <tuple>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/device/kernels.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// cuBLAS asks for 32 MiB on Hopper; this much also fills its L2 cache (choose_product.cc).
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int64_t kCounters = 512;  // of tiles whose sums are split among thread blocks

ProductShape ShapeOf(const DeviceWeight& w, ProductOutput output) {
  return {w.n_out(), w.n_in(), w.type(), output};
}

// cuBLASLt rounds no sums with a bias in fp32: then another kernel rounds them.
bool RoundsAfterwards(const ProductArgs& args) {
  return args.rounded != nullptr && args.bias != nullptr;
}

ProductOutput OutputOf(const ProductArgs& args) {
  return args.rounded != nullptr && !RoundsAfterwards(args) ? ProductOutput::kRounded
                                                            : ProductOutput::kFloat;
}

// The methods chosen in this process. Devices choose one after another.
struct Chosen {
  std::mutex mutex;
  std::map<std::tuple<std::string, MethodsToTry, ProductShape>, ChosenProduct> methods;
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
  if (wanted == "warpgroups") return MethodsToTry::kWarpgroups;
  if (wanted == "cublas") return MethodsToTry::kCublas;
  if (wanted == "fastest") return MethodsToTry::kFastest;
  return absl::InvalidArgumentError(absl::StrCat(
      "LOWKEY_CUDA_PRODUCTS=", wanted, ", expected plain, tiles, warpgroups, cublas or fastest"));
}

bool Is(OwnKernel kernel, const ProductMethod& method) {
  const auto* own = std::get_if<OwnKernel>(&method);
  return own != nullptr && *own == kernel;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Products>> Products::Create(Device& device, cudaStream_t stream,
                                                           bool has_warpgroups) {
  auto made = absl::WrapUnique(new Products(device, has_warpgroups));
  LK_ASSIGN_OR_RETURN(made->wanted_, Wanted());
  LK_ASSIGN_OR_RETURN(made->workspace_, Buffer::Allocate(kWorkspaceBytes, &device));
  LK_ASSIGN_OR_RETURN(made->counters_, Buffer::Allocate(kCounters * sizeof(unsigned), &device));
  made->context_.stream = stream;
  made->context_.workspace = {made->workspace_.data(), kWorkspaceBytes};
  LK_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&made->context_.handle), "cuBLASLt"));
  return made;
}

Products::~Products() {
  if (context_.handle != nullptr) (void)cublasLtDestroy(context_.handle);
}

absl::Status Products::Choose(const DeviceWeight& weight) {
  LK_RETURN_IF_ERROR(Choose(weight, ProductOutput::kFloat));
  if (weight.type() != StorageType::kBFloat16) return absl::OkStatus();
  return Choose(weight, ProductOutput::kRounded);
}

absl::Status Products::Choose(const DeviceWeight& weight, ProductOutput output) {
  const ProductShape shape = ShapeOf(weight, output);
  if (methods_.contains(shape)) return absl::OkStatus();
  Chosen& chosen = ChosenInProcess();
  const std::lock_guard lock(chosen.mutex);
  const auto key = std::make_tuple(device_.name(), wanted_, shape);
  if (!chosen.methods.contains(key)) {
    const auto multiply = [this](const ProductArgs& args, const ProductMethod& tried) {
      return MultiplyBy(args, tried);
    };
    LK_ASSIGN_OR_RETURN(const ChosenProduct product,
                        ChooseProductMethods(device_, context_, weight, output, wanted_,
                                             has_warpgroups_, multiply));
    LK_RETURN_IF_ERROR(device_.status());
    chosen.methods.emplace(key, product);
  }
  methods_.emplace(shape, chosen.methods.at(key));
  return device_.status();
}

WarpgroupSpace Products::space() {
  return {workspace_.as<float>(), static_cast<int64_t>(kWorkspaceBytes / sizeof(float)),
          counters_.as<unsigned>(), kCounters};
}

absl::Status Products::MultiplyBy(const ProductArgs& args, const ProductMethod& method) {
  LK_CHECK(args.rounded == nullptr || args.into == GemmArgs::Into::kOverwrite);
  ProductArgs summed = args;
  if (RoundsAfterwards(args)) summed.rounded = nullptr;
  if (const auto* lt = std::get_if<cublasLtMatmulAlgo_t>(&method); lt && LtProduct::Takes(summed)) {
    LK_RETURN_IF_ERROR(CublasStatus(LtProduct(summed).Run(context_, *lt), "product"));
    if (RoundsAfterwards(args)) {
      device_.kernels().round(device_, {args.y, args.n_rows * args.ld_y, args.rounded});
    }
    return absl::OkStatus();
  }
  if (Is(OwnKernel::kInOrder, method) && args.n_rows > kMostOrderedRows) {
    return absl::InvalidArgumentError(
        absl::StrCat(args.n_rows, " rows, expected ", kMostOrderedRows, " at most"));
  }
  if (Is(OwnKernel::kInOrder, method) && TilesTake(args)) {
    MultiplyInOrder(device_, args);
  } else if (Is(OwnKernel::kTiles, method) && TilesTake(args)) {
    MultiplyByTiles(device_, args);
  } else if (Is(OwnKernel::kWarpgroups, method) && TilesTake(args)) {
    MultiplyByWarpgroups(device_, args, space());
  } else {
    MultiplyPlainly(device_, args);
  }
  return absl::OkStatus();
}

std::vector<ProductChoice> Products::Choices() const {
  std::vector<ProductChoice> choices;
  if (wanted_ == MethodsToTry::kFastest) return choices;  // it chooses later, for each product
  for (const auto& [shape, chosen] : methods_) {
    ProductChoice& choice = choices.emplace_back();
    choice.n_out = shape.n_out;
    choice.n_in = shape.n_in;
    choice.type = shape.type;
    choice.rounded = shape.output == ProductOutput::kRounded;
    choice.way = NameOf(chosen);
    for (const ChosenProduct::Range& range : chosen.ranges) {
      choice.timings.push_back({range.most_rows, range.microseconds});
    }
    choice.refused = chosen.refused;
  }
  return choices;
}

absl::StatusOr<ProductMethod> Products::MethodFor(const ProductArgs& args) {
  const DeviceWeight& weight = *args.weight;
  if (IsNarrow(weight.type())) {  // only our own kernels read these
    return wanted_ == MethodsToTry::kPlain ? OwnKernel::kPlain : OwnKernel::kTiles;
  }
  const ProductShape shape = ShapeOf(weight, OutputOf(args));
  if (wanted_ != MethodsToTry::kFastest) {
    const auto chosen = methods_.find(shape);
    LK_CHECK(chosen != methods_.end());  // else the weight is another device's
    const ProductMethod& method = chosen->second.For(args.n_rows);
    // Who adds a bias and earlier results in which order is cuBLASLt's own.
    const bool adds_both = args.bias != nullptr && args.into == GemmArgs::Into::kAccumulate;
    if (adds_both && Is(OwnKernel::kInOrder, method)) {
      return chosen->second.For(kMostOrderedRows + 1);
    }
    return method;
  }
  const auto key = std::make_pair(shape, args.n_rows);
  if (const auto known = fastest_.find(key); known != fastest_.end()) return known->second;
  LK_ASSIGN_OR_RETURN(
      const ProductMethod method,
      FastestMethod(context_, args, [this](const ProductArgs& tried, const ProductMethod& by) {
        return MultiplyBy(tried, by);
      }));
  return fastest_.emplace(key, method).first->second;
}

absl::Status Products::Multiply(const ProductArgs& args) {
  LK_ASSIGN_OR_RETURN(const ProductMethod method, MethodFor(args));
  return MultiplyBy(args, method);
}

absl::Status Products::MultiplyGated(const GatedProductArgs& args) {
  // Gates and ups are in bf16 between a method of cuBLASLt and the gating, at half the bytes.
  GatedProductArgs halves = args;
  if (args.product.weight->type() == StorageType::kBFloat16 && args.product.bias == nullptr) {
    halves.product.rounded = reinterpret_cast<uint16_t*>(args.product.y);
  }
  LK_ASSIGN_OR_RETURN(const ProductMethod method, MethodFor(halves.product));
  absl::Status status;
  if (Is(OwnKernel::kTiles, method) && TilesTake(args.product)) {
    MultiplyGatedByTiles(device_, args);
    return status;
  }
  if (Is(OwnKernel::kWarpgroups, method) && TilesTake(args.product)) {
    MultiplyGatedByWarpgroups(device_, args, space());
    return status;
  }
  const bool of_cublas =
      !std::holds_alternative<OwnKernel>(method) || Is(OwnKernel::kInOrder, method);
  GateAfter(device_, of_cublas ? halves : args,
            [&](const ProductArgs& product) { status = MultiplyBy(product, method); });
  return status;
}

}  // namespace lowkey
