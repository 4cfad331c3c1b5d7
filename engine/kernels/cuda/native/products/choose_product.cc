#include "engine/kernels/cuda/native/products/choose_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products/products.h"

namespace lowkey {
namespace {

constexpr int64_t kMostRows = 512;
// How many rows steps have, and how often: most steps generate.
struct Load {
  int64_t n_rows;
  double weight;
};
constexpr Load kLoads[] = {{1, 2}, {64, 2}, {kMostRows, 1}};
constexpr int kTimes = 5;
// Another method must take this share of the best time so far. Between methods that are nearly as
// fast as each other the first wins, in this process as in the next, and rows keep their bits.
constexpr double kGain = 0.9;
// The row that is tried, and the first rows and row counts of the products that contain it.
constexpr int64_t kTriedRow = 300;
// Rows that are compared with the plain kernel's: beside the borders of tiles of rows.
constexpr int64_t kComparedRows[] = {0, 63, 191, 511};
constexpr Load kNeighbors[] = {{300, 1},  {299, 3},   {290, 16}, {280, 32},
                               {256, 64}, {213, 100}, {0, 512}};

struct Event {
  Event() { (void)cudaEventCreate(&event); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

using Multiply = absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)>;

// Returns the median of some times of a product, infinite where it does not run.
absl::StatusOr<double> MedianMicroseconds(const LtContext& context, const ProductArgs& args,
                                          const ProductMethod& method, Multiply multiply) {
  const Event begin, end;
  std::vector<double> times;
  for (int i = 0; i <= kTimes; ++i) {
    // Clears the weight from the cache: between two uses of a weight a model reads all others.
    LK_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(context.workspace.data(), 0, context.workspace.size(), context.stream),
        "product");
    LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin.event, context.stream), "product");
    if (!multiply(args, method).ok()) return std::numeric_limits<double>::infinity();
    LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(end.event, context.stream), "product");
    LK_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end.event), "product");
    float milliseconds = 0;
    LK_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin.event, end.event), "product");
    if (i > 0) times.push_back(1e3 * milliseconds);  // the first run may have loaded the kernel
  }
  std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
  return times[kTimes / 2];
}

class Trial {
 public:
  Trial(Device& device, const LtContext& context, const DeviceWeight& weight, Multiply multiply)
      : device_(device), context_(context), weight_(weight), multiply_(multiply) {}

  absl::Status Prepare();
  // Returns our own kernels, and the methods of cuBLASLt that run with every number of rows, with and
  // without a bias.
  std::vector<ProductMethod> Methods(MethodsToTry wanted, bool has_warpgroups) const;
  // Times each of kLoads; infinite where the method does not run.
  absl::StatusOr<std::vector<ProductChoice::Timing>> Time(const ProductMethod& method);
  absl::StatusOr<bool> KeepsBits(const ProductMethod& method);
  // Returns whether rows of products of few and of many rows are close to the plain kernel's.
  absl::StatusOr<bool> IsRight(const ProductMethod& method);

 private:
  ProductArgs Args(int64_t first_row, int64_t n_rows) const;
  // Returns row `row` of the product of rows [0, n_rows).
  absl::StatusOr<std::vector<float>> RowOf(int64_t row, int64_t n_rows,
                                           const ProductMethod& method);
  std::vector<cublasLtMatmulAlgo_t> CublasMethods() const;
  bool RunsAlways(const cublasLtMatmulAlgo_t& method) const;
  Device& device_;
  const LtContext& context_;
  const DeviceWeight& weight_;
  const Multiply multiply_;
  Buffer x_, y_;
};

absl::Status Trial::Prepare() {
  const int64_t n = kMostRows * weight_.n_in();
  const auto x_bytes = static_cast<size_t>(n * StorageBytes(weight_.type()));
  LK_ASSIGN_OR_RETURN(x_, Buffer::Allocate(x_bytes, &device_));
  LK_ASSIGN_OR_RETURN(
      y_,
      Buffer::Allocate(static_cast<size_t>(kMostRows * weight_.n_out()) * sizeof(float), &device_));
  // The numbers' sums round: any other order of a sum shows.
  std::minstd_rand engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::byte> x(x_bytes);
  for (int64_t i = 0; i < n; ++i) {
    const float v = uniform(engine);
    if (weight_.type() == StorageType::kFloat32) {
      reinterpret_cast<float*>(x.data())[i] = v;
    } else {
      reinterpret_cast<uint16_t*>(x.data())[i] = ToBFloat16(v).bits;
    }
  }
  device_.Upload(x.data(), x_.data(), static_cast<int64_t>(x_bytes));
  return device_.status();
}

ProductArgs Trial::Args(int64_t first_row, int64_t n_rows) const {
  return {.weight = &weight_,
          .x = x_.data() + first_row * weight_.n_in() * StorageBytes(weight_.type()),
          .ld_x = weight_.n_in(),
          .n_rows = n_rows,
          .y = const_cast<float*>(y_.as<float>()),
          .ld_y = weight_.n_out()};
}

std::vector<cublasLtMatmulAlgo_t> Trial::CublasMethods() const {
  std::vector<cublasLtMatmulAlgo_t> methods;
  for (const Load& load : kLoads) {
    const ProductArgs args = Args(0, load.n_rows);
    if (!LtProduct::Takes(args)) continue;
    for (const auto& method : LtProduct(args).Methods(context_, SumOrder::kInOneGo)) {
      const auto is_method = [&](const auto& other) {
        return std::memcmp(&method, &other, sizeof(method)) == 0;
      };
      if (std::none_of(methods.begin(), methods.end(), is_method)) methods.push_back(method);
    }
  }
  return methods;
}

bool Trial::RunsAlways(const cublasLtMatmulAlgo_t& method) const {
  return std::all_of(std::begin(kLoads), std::end(kLoads), [&](const Load& load) {
    ProductArgs args = Args(0, load.n_rows);
    if (!LtProduct(args).CanRun(context_, method)) return false;
    args.bias = args.y;  // only the presence of a bias matters
    return LtProduct(args).CanRun(context_, method);
  });
}

std::vector<ProductMethod> Trial::Methods(MethodsToTry wanted, bool has_warpgroups) const {
  std::vector<ProductMethod> methods;
  const bool all = wanted == MethodsToTry::kAll;
  if (TilesTake(Args(0, 1))) {
    if (all || wanted == MethodsToTry::kTiles) methods.push_back(OwnKernel::kTiles);
    if (has_warpgroups && (all || wanted == MethodsToTry::kWarpgroups)) {
      methods.push_back(OwnKernel::kWarpgroups);
    }
  }
  if (!all && wanted != MethodsToTry::kCublas) return methods;
  for (const auto& method : CublasMethods()) {
    if (RunsAlways(method)) methods.push_back(method);
  }
  return methods;
}

absl::StatusOr<std::vector<ProductChoice::Timing>> Trial::Time(const ProductMethod& method) {
  std::vector<ProductChoice::Timing> timings;
  for (const Load& load : kLoads) {
    LK_ASSIGN_OR_RETURN(const double us,
                        MedianMicroseconds(context_, Args(0, load.n_rows), method, multiply_));
    timings.push_back({load.n_rows, us});
  }
  return timings;
}

double Weighted(const std::vector<ProductChoice::Timing>& timings) {
  double sum = 0;
  for (size_t i = 0; i < timings.size(); ++i) sum += kLoads[i].weight * timings[i].microseconds;
  return sum;
}

absl::StatusOr<bool> Trial::KeepsBits(const ProductMethod& method) {
  std::vector<float> alone, among(weight_.n_out());
  const auto row_bytes = static_cast<int64_t>(among.size() * sizeof(float));
  for (const auto& [first_row, n_rows] : kNeighbors) {
    const ProductArgs args = Args(first_row, static_cast<int64_t>(n_rows));
    if (!multiply_(args, method).ok()) return false;
    LK_RETURN_IF_ERROR(device_.Download(args.y + (kTriedRow - first_row) * weight_.n_out(),
                                        among.data(), row_bytes));
    if (alone.empty()) alone = among;
    if (std::memcmp(among.data(), alone.data(), static_cast<size_t>(row_bytes)) != 0) return false;
  }
  return true;
}

absl::StatusOr<std::vector<float>> Trial::RowOf(int64_t row, int64_t n_rows,
                                                const ProductMethod& method) {
  const ProductArgs args = Args(0, n_rows);
  // NaN there keeps numbers of an earlier product from standing for those of this one.
  LK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(y_.data(), 0xff, y_.size_bytes(), context_.stream),
                          "product");
  LK_RETURN_IF_ERROR(multiply_(args, method));
  std::vector<float> y(weight_.n_out());
  LK_RETURN_IF_ERROR(device_.Download(args.y + row * weight_.n_out(), y.data(),
                                      static_cast<int64_t>(y.size() * sizeof(float))));
  return y;
}

absl::StatusOr<bool> Trial::IsRight(const ProductMethod& method) {
  constexpr float kTolerance = 1e-3f;  // of the row's largest number; another order changes 1e-6
  for (const int64_t row : kComparedRows) {
    for (const Load& load : kLoads) {
      if (row >= load.n_rows) continue;
      LK_ASSIGN_OR_RETURN(const auto expected, RowOf(row, row + 1, OwnKernel::kPlain));
      LK_ASSIGN_OR_RETURN(const auto y, RowOf(row, load.n_rows, method));
      float largest = 0, worst = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        largest = std::max(largest, std::fabs(expected[i]));
        // With NaN this is a difference too.
        if (!(std::fabs(y[i] - expected[i]) <= worst)) worst = std::fabs(y[i] - expected[i]);
      }
      if (!(worst <= kTolerance * largest)) return false;
    }
  }
  return true;
}

}  // namespace

std::string NameOf(const ProductMethod& method) {
  if (const auto* lt = std::get_if<cublasLtMatmulAlgo_t>(&method)) {
    return absl::StrCat("cublasLt algorithm ", AlgorithmOf(*lt));
  }
  switch (std::get<OwnKernel>(method)) {
    case OwnKernel::kTiles:
      return "tiles";
    case OwnKernel::kWarpgroups:
      return "warpgroups";
    case OwnKernel::kPlain:
      break;
  }
  return "plain";
}

absl::StatusOr<ChosenProduct> ChooseProductMethod(
    Device& device, const LtContext& context, const DeviceWeight& weight, MethodsToTry wanted,
    bool has_warpgroups,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)> multiply) {
  Trial trial(device, context, weight, multiply);
  LK_RETURN_IF_ERROR(trial.Prepare());
  ChosenProduct best;
  double best_us = std::numeric_limits<double>::infinity();
  std::vector<std::string> refused;
  for (const ProductMethod& method : trial.Methods(wanted, has_warpgroups)) {
    LK_ASSIGN_OR_RETURN(auto timings, trial.Time(method));
    const double us = Weighted(timings);
    if (us >= kGain * best_us) continue;
    LK_ASSIGN_OR_RETURN(const bool keeps_bits, trial.KeepsBits(method));
    LK_ASSIGN_OR_RETURN(const bool is_right, trial.IsRight(method));
    if (!keeps_bits || !is_right) {
      refused.push_back(absl::StrCat(
          NameOf(method), is_right ? ": a row's bits depend on its company" : ": wrong numbers"));
      continue;
    }
    best = {method, std::move(timings), ""};
    best_us = us;
  }
  best.refused = absl::StrJoin(refused, "; ");
  return best;
}

absl::StatusOr<ProductMethod> FastestMethod(
    const LtContext& context, ProductArgs args,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductMethod&)> multiply) {
  args.into = GemmArgs::Into::kOverwrite;
  ProductMethod best = OwnKernel::kPlain;
  double best_us = std::numeric_limits<double>::infinity();
  if (!LtProduct::Takes(args)) return best;
  for (const auto& method : LtProduct(args).Methods(context, SumOrder::kAny)) {
    LK_ASSIGN_OR_RETURN(const double us, MedianMicroseconds(context, args, method, multiply));
    if (us >= best_us) continue;
    best = method;
    best_us = us;
  }
  return best;
}

}  // namespace lowkey
