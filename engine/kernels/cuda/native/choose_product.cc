#include "engine/kernels/cuda/native/choose_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products/products.h"

namespace lowkey {
namespace {

constexpr int64_t kMostRows = 512;
// What a step's rows are, and how often: most steps generate.
struct Load {
  int64_t n_rows;
  double weight;
};
constexpr Load kLoads[] = {{1, 2}, {64, 2}, {kMostRows, 1}};
constexpr int kTimes = 5;
// So much less time than the best before must another way take: between ways that are nearly as
// fast as each other the first wins, in this process as in the next, and rows keep their bits.
constexpr double kGain = 0.9;
// A row, and the first rows and counts of products that it is computed in.
constexpr int64_t kTriedRow = 300;
constexpr Load kNeighbors[] = {{300, 1}, {299, 3}, {256, 64}, {213, 100}, {0, 512}};

struct Event {
  Event() { (void)cudaEventCreate(&event); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

class Trial {
 public:
  using Multiply = absl::FunctionRef<absl::Status(const ProductArgs&, const ProductWay&)>;

  Trial(Device& device, const LtContext& context, const DeviceWeight& weight, Multiply multiply)
      : device_(device), context_(context), weight_(weight), multiply_(multiply) {}

  absl::Status Prepare();
  // Our tiles, and those of cuBLASLt that can run with every number of rows, with and without a
  // bias.
  std::vector<ProductWay> Ways(WaysToTry wanted) const;
  // Infinite where it does not run. Microseconds, weighted.
  absl::StatusOr<double> Time(const ProductWay& way);
  absl::StatusOr<bool> KeepsBits(const ProductWay& way);

 private:
  ProductArgs Args(int64_t first_row, int64_t n_rows) const;
  std::vector<cublasLtMatmulAlgo_t> CublasWays() const;
  bool RunsAlways(const cublasLtMatmulAlgo_t& way) const;
  absl::StatusOr<double> MedianMicroseconds(const ProductArgs& args, const ProductWay& way);

  Device& device_;
  const LtContext& context_;
  const DeviceWeight& weight_;
  const Multiply multiply_;
  Buffer x_, y_;
  Event begin_, end_;
};

absl::Status Trial::Prepare() {
  const int64_t n = kMostRows * weight_.n_in();
  const auto x_bytes = static_cast<size_t>(n * StorageBytes(weight_.type()));
  LK_ASSIGN_OR_RETURN(x_, Buffer::Allocate(x_bytes, &device_));
  LK_ASSIGN_OR_RETURN(
      y_,
      Buffer::Allocate(static_cast<size_t>(kMostRows * weight_.n_out()) * sizeof(float), &device_));
  // Numbers whose sums round: any order other than the same one shows.
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

std::vector<cublasLtMatmulAlgo_t> Trial::CublasWays() const {
  std::vector<cublasLtMatmulAlgo_t> ways;
  for (const Load& load : kLoads) {
    const ProductArgs args = Args(0, load.n_rows);
    if (!LtProduct::Takes(args)) continue;
    for (const auto& way : LtProduct(args).Ways(context_)) {
      const auto is_way = [&](const auto& other) {
        return std::memcmp(&way, &other, sizeof(way)) == 0;
      };
      if (std::none_of(ways.begin(), ways.end(), is_way)) ways.push_back(way);
    }
  }
  return ways;
}

bool Trial::RunsAlways(const cublasLtMatmulAlgo_t& way) const {
  return std::all_of(std::begin(kLoads), std::end(kLoads), [&](const Load& load) {
    ProductArgs args = Args(0, load.n_rows);
    if (!LtProduct(args).CanRun(context_, way)) return false;
    args.bias = args.y;  // only its presence matters
    return LtProduct(args).CanRun(context_, way);
  });
}

std::vector<ProductWay> Trial::Ways(WaysToTry wanted) const {
  std::vector<ProductWay> ways;
  const bool all = wanted == WaysToTry::kAll;
  if ((all || wanted == WaysToTry::kTiles) && TilesTake(Args(0, 1))) {
    ways.push_back(OwnKernel::kTiles);
  }
  if (!all && wanted != WaysToTry::kCublas) return ways;
  for (const auto& way : CublasWays()) {
    if (RunsAlways(way)) ways.push_back(way);
  }
  return ways;
}

absl::StatusOr<double> Trial::MedianMicroseconds(const ProductArgs& args, const ProductWay& way) {
  std::vector<double> times;
  for (int i = 0; i <= kTimes; ++i) {
    // Puts what the last run read out of the cache: between two uses of a weight in a model, all
    // of the others are read.
    LK_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(context_.workspace.data(), 0, context_.workspace.size(), context_.stream),
        "product");
    LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(begin_.event, context_.stream), "product");
    if (!multiply_(args, way).ok()) return std::numeric_limits<double>::infinity();
    LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(end_.event, context_.stream), "product");
    LK_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(end_.event), "product");
    float milliseconds = 0;
    LK_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin_.event, end_.event),
                            "product");
    if (i > 0) times.push_back(1e3 * milliseconds);  // the first may have loaded the kernel
  }
  std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
  return times[kTimes / 2];
}

absl::StatusOr<double> Trial::Time(const ProductWay& way) {
  double sum = 0;
  for (const Load& load : kLoads) {
    LK_ASSIGN_OR_RETURN(double us, MedianMicroseconds(Args(0, load.n_rows), way));
    sum += load.weight * us;
  }
  return sum;
}

absl::StatusOr<bool> Trial::KeepsBits(const ProductWay& way) {
  std::vector<float> alone, among(weight_.n_out());
  const auto row_bytes = static_cast<int64_t>(among.size() * sizeof(float));
  for (const auto& [first_row, n_rows] : kNeighbors) {
    const ProductArgs args = Args(first_row, static_cast<int64_t>(n_rows));
    if (!multiply_(args, way).ok()) return false;
    LK_RETURN_IF_ERROR(device_.Download(args.y + (kTriedRow - first_row) * weight_.n_out(),
                                        among.data(), row_bytes));
    if (alone.empty()) alone = among;
    if (std::memcmp(among.data(), alone.data(), static_cast<size_t>(row_bytes)) != 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<ProductWay> ChooseProductWay(
    Device& device, const LtContext& context, const DeviceWeight& weight, WaysToTry wanted,
    absl::FunctionRef<absl::Status(const ProductArgs&, const ProductWay&)> multiply) {
  Trial trial(device, context, weight, multiply);
  LK_RETURN_IF_ERROR(trial.Prepare());
  ProductWay best = OwnKernel::kPlain;
  double best_us = std::numeric_limits<double>::infinity();
  for (const ProductWay& way : trial.Ways(wanted)) {
    LK_ASSIGN_OR_RETURN(const double us, trial.Time(way));
    if (us >= kGain * best_us) continue;
    LK_ASSIGN_OR_RETURN(const bool keeps_bits, trial.KeepsBits(way));
    if (!keeps_bits) continue;
    best = way;
    best_us = us;
  }
  return best;
}

}  // namespace lowkey
