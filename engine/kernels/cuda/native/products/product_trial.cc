#include "engine/kernels/cuda/native/products/product_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/products/products.h"

namespace lowkey {
namespace {

constexpr ProductLoad kLoads[] = {{1, 4},   {16, 4},  {32, 2},    {64, 4},   {128, 2},
                                  {256, 1}, {512, 1}, {1024, .5}, {2048, .5}};
constexpr int64_t kMostRows = 2048;
constexpr int64_t kMostResultBytes = int64_t{256} << 20;
constexpr int kTimes = 3;
// Rows whose bits are compared, beside the borders of tiles of rows, and rows that are compared
// with the plain kernel's.
constexpr int64_t kTriedRows[] = {0, 7, 15, 23, 40, 63, 90, 127, 191, 255, 300, 511, 1023, 2047};
constexpr int64_t kComparedRows[] = {0, 63, 191, 511};

struct Event {
  Event() { (void)cudaEventCreate(&event); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

}  // namespace

absl::StatusOr<double> MedianMicroseconds(const LtContext& context, const ProductArgs& args,
                                          const ProductMethod& method, MultiplyBy multiply) {
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

std::string NameOf(const ProductMethod& method) {
  if (const auto* lt = std::get_if<cublasLtMatmulAlgo_t>(&method)) {
    return absl::StrCat("cublasLt algorithm ", AlgorithmOf(*lt));
  }
  switch (std::get<OwnKernel>(method)) {
    case OwnKernel::kTiles:
      return "tiles";
    case OwnKernel::kWarpgroups:
      return "warpgroups";
    case OwnKernel::kInOrder:
      return "sums in order";
    case OwnKernel::kPlain:
      break;
  }
  return "plain";
}

absl::StatusOr<std::vector<float>> ProductTrial::Accumulated(const ProductMethod& method) {
  ProductArgs args = Args(0, 1);
  LK_RETURN_IF_ERROR(multiply_(args, method));
  if (output_ == ProductOutput::kFloat) {
    args = Args(most_rows_ / 2, 1);
    args.into = GemmArgs::Into::kAccumulate;
    LK_RETURN_IF_ERROR(multiply_(args, method));
  }
  return ReadRow(0);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

absl::Status ProductTrial::Prepare() {
  const auto row_bytes = static_cast<int64_t>(weight_.n_out() * sizeof(float));
  const int64_t most_bytes = std::min(kMostResultBytes, device_.free_bytes() / 4);
  most_rows_ = kMostRows;
  while (most_rows_ > 1 && most_rows_ * row_bytes > most_bytes) most_rows_ /= 2;
  const int64_t n = most_rows_ * weight_.n_in();
  const auto x_bytes = static_cast<size_t>(n * StorageBytes(weight_.type()));
  const auto y_bytes = static_cast<size_t>(most_rows_ * row_bytes);
  LK_ASSIGN_OR_RETURN(x_, Buffer::Allocate(x_bytes, &device_));
  LK_ASSIGN_OR_RETURN(y_, Buffer::Allocate(y_bytes, &device_));
  if (output_ == ProductOutput::kRounded) {
    LK_ASSIGN_OR_RETURN(rounded_, Buffer::Allocate(y_bytes / 2, &device_));
  }
  // The numbers' sums round: any other order of a sum shows. Rows differ, for no row is as long as
  // what is repeated.
  std::minstd_rand engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> numbers(65'521);
  for (float& v : numbers) v = uniform(engine);
  std::vector<std::byte> x(x_bytes);
  for (int64_t i = 0; i < n; ++i) {
    const float v = numbers[i % numbers.size()];
    if (weight_.type() == StorageType::kFloat32) {
      reinterpret_cast<float*>(x.data())[i] = v;
    } else {
      reinterpret_cast<uint16_t*>(x.data())[i] = ToBFloat16(v).bits;
    }
  }
  device_.Upload(x.data(), x_.data(), static_cast<int64_t>(x_bytes));
  return device_.status();
}

absl::Span<const ProductLoad> ProductTrial::loads() const {
  absl::Span<const ProductLoad> loads = kLoads;
  while (loads.back().n_rows > most_rows_) loads.remove_suffix(1);
  return loads;
}

ProductArgs ProductTrial::Args(int64_t first_row, int64_t n_rows) const {
  ProductArgs args;
  args.weight = &weight_;
  args.x = x_.data() + first_row * weight_.n_in() * StorageBytes(weight_.type());
  args.ld_x = weight_.n_in();
  args.n_rows = n_rows;
  args.y = const_cast<float*>(y_.as<float>());
  args.ld_y = weight_.n_out();
  if (output_ == ProductOutput::kRounded) {
    args.rounded = const_cast<uint16_t*>(rounded_.as<uint16_t>());
  }
  return args;
}

bool ProductTrial::RunsAlways(const cublasLtMatmulAlgo_t& method) const {
  return absl::c_all_of(loads(), [&](const ProductLoad& load) {
    ProductArgs args = Args(0, load.n_rows);
    if (!LtProduct(args).CanRun(context_, method)) return false;
    if (output_ == ProductOutput::kRounded) return true;  // without a bias (lt_product.h)
    args.bias = args.y;                                   // only the presence of a bias matters
    return LtProduct(args).CanRun(context_, method);
  });
}

std::vector<ProductMethod> ProductTrial::OwnMethods(MethodsToTry wanted,
                                                    bool has_warpgroups) const {
  std::vector<ProductMethod> methods;
  const bool all = wanted == MethodsToTry::kAll;
  if (!TilesTake(Args(0, 1))) return methods;
  if (all || wanted == MethodsToTry::kTiles) methods.push_back(OwnKernel::kTiles);
  if (has_warpgroups && (all || wanted == MethodsToTry::kWarpgroups)) {
    methods.push_back(OwnKernel::kWarpgroups);
  }
  return methods;
}

bool ProductTrial::TakesInOrder() const {
  return weight_.type() == StorageType::kBFloat16 && TilesTake(Args(0, 1));
}

std::vector<ProductMethod> ProductTrial::CublasMethods(int64_t n_rows) const {
  std::vector<ProductMethod> methods;
  const ProductArgs args = Args(0, n_rows);
  if (!LtProduct::Takes(args)) return methods;
  for (const auto& method : LtProduct(args).Methods(context_, SumOrder::kInOneGo)) {
    if (RunsAlways(method)) methods.push_back(method);
  }
  return methods;
}

absl::StatusOr<double> ProductTrial::Time(int64_t n_rows, const ProductMethod& method) {
  return MedianMicroseconds(context_, Args(0, n_rows), method, multiply_);
}

absl::StatusOr<std::vector<float>> ProductTrial::ReadRow(int64_t row) {
  std::vector<float> y(weight_.n_out());
  const auto n = static_cast<int64_t>(y.size());
  if (output_ == ProductOutput::kFloat) {
    LK_RETURN_IF_ERROR(device_.Download(y_.as<float>() + row * n, y.data(),
                                        n * static_cast<int64_t>(sizeof(float))));
    return y;
  }
  std::vector<uint16_t> rounded(y.size());
  LK_RETURN_IF_ERROR(device_.Download(rounded_.as<uint16_t>() + row * n, rounded.data(),
                                      n * static_cast<int64_t>(sizeof(uint16_t))));
  absl::c_transform(rounded, y.begin(), [](uint16_t bits) { return ToFloat(BFloat16{bits}); });
  return y;
}

absl::StatusOr<RowBits> ProductTrial::BitsAlone(const ProductMethod& method) {
  RowBits bits;
  for (const int64_t row : kTriedRows) {
    if (row >= most_rows_) break;
    LK_RETURN_IF_ERROR(multiply_(Args(row, 1), method));
    LK_ASSIGN_OR_RETURN(bits.emplace_back(), ReadRow(0));
  }
  return bits;
}

absl::StatusOr<bool> ProductTrial::KeepsBits(int64_t fewer_rows, int64_t n_rows,
                                             const ProductMethod& method, const RowBits& bits) {
  // Most rows, the fewest, and a number between that is no multiple of a tile.
  for (const int64_t n : {n_rows, fewer_rows + 1, fewer_rows + (n_rows - fewer_rows) / 3 + 1}) {
    if (n > n_rows) continue;
    if (!multiply_(Args(0, n), method).ok()) return false;
    for (size_t i = 0; i < bits.size() && kTriedRows[i] < n; ++i) {
      LK_ASSIGN_OR_RETURN(const std::vector<float> among, ReadRow(kTriedRows[i]));
      if (!SameBits(among, bits[i])) return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<float>> ProductTrial::RowOf(int64_t row, int64_t n_rows,
                                                       const ProductMethod& method) {
  // NaN there keeps numbers of an earlier product from standing for those of this one.
  for (Buffer* to : {&y_, &rounded_}) {
    LK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(to->data(), 0xff, to->size_bytes(), context_.stream),
                            "product");
  }
  LK_RETURN_IF_ERROR(multiply_(Args(0, n_rows), method));
  return ReadRow(row);
}

absl::StatusOr<bool> ProductTrial::IsRight(
    absl::FunctionRef<const ProductMethod&(int64_t)> method_for) {
  // The tolerance is a share of the row's largest number. Another order of a sum changes 1e-6 of
  // it, another rounding to bf16 4e-3.
  const float tolerance = output_ == ProductOutput::kFloat ? 1e-3f : 1e-2f;
  for (const int64_t row : kComparedRows) {
    if (row >= most_rows_) break;
    LK_ASSIGN_OR_RETURN(const auto expected, RowOf(row, row + 1, OwnKernel::kPlain));
    for (const ProductLoad& load : loads()) {
      if (row >= load.n_rows) continue;
      LK_ASSIGN_OR_RETURN(const auto y, RowOf(row, load.n_rows, method_for(load.n_rows)));
      float largest = 0, worst = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        largest = std::max(largest, std::fabs(expected[i]));
        // With NaN this is a difference too.
        if (!(std::fabs(y[i] - expected[i]) <= worst)) worst = std::fabs(y[i] - expected[i]);
      }
      if (!(worst <= tolerance * largest)) return false;
    }
  }
  return true;
}

}  // namespace lowkey
