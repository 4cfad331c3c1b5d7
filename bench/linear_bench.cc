// Speed of products by weight format and number of rows, beside the machine's limits:
//   linear_bench [--n_in 768] [--n_out 8192] [--threads N] [--only Q4_K]
// With few rows a product reads weights that no cache holds, and bytes a second are printed; with
// more rows, multiplications and additions a second.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "bench/machine.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/linear.h"

ABSL_FLAG(int, n_in, 768, "inputs; a multiple of 256");
ABSL_FLAG(int, n_out, 8192, "outputs");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(int, runs, 5, "of each figure; the best is printed");
ABSL_FLAG(std::string, only, "", "measure the formats whose names hold this");

namespace lowkey {
namespace {

constexpr int64_t kColdBytes = int64_t{64} << 20;  // of weights in turn, more than caches hold
constexpr int64_t kFewRows = 4;
constexpr int64_t kRows[] = {1, 2, 3, 4, 6, 16, 64, 256, 512};

struct Format {
  const char* name;
  DType stored;
  WeightStorage storage;
};
constexpr Format kFormats[] = {
    {"float32", DType::kF32, {StorageType::kFloat32, false}},
    {"bfloat16", DType::kF32, {StorageType::kBFloat16, false}},
    {"int8", DType::kF32, {StorageType::kInt8, false}},
    {"Q8_0", DType::kQ8_0, {StorageType::kBFloat16, true}},
    {"Q4_0", DType::kQ4_0, {StorageType::kBFloat16, true}},
    {"Q4_1", DType::kQ4_1, {StorageType::kBFloat16, true}},
    {"Q4_K", DType::kQ4_K, {StorageType::kBFloat16, true}},
    {"Q5_K", DType::kQ5_K, {StorageType::kBFloat16, true}},
    {"Q6_K", DType::kQ6_K, {StorageType::kBFloat16, true}},
};

// Enough copies of a weight to be cold each time.
class ColdWeights {
 public:
  static absl::StatusOr<ColdWeights> Make(const Format& format, int64_t n_out, int64_t n_in,
                                          ThreadPool& pool) {
    const size_t n_bytes = static_cast<size_t>(n_out * n_in / DTypeBlockSize(format.stored)) *
                           DTypeBytes(format.stored);
    // These bytes are small, normal numbers, in fp32 and as scales of blocks.
    const std::vector<std::byte> stored(n_bytes, std::byte{0x31});
    const TensorView view{format.stored, {n_out, n_in}, stored.data()};
    ColdWeights out;
    do {
      LK_ASSIGN_OR_RETURN(PackedWeight w, PackedWeight::Pack({&view, 1}, format.storage, pool));
      out.weights_.push_back(std::move(w));
    } while (out.bytes() < kColdBytes);
    return out;
  }

  int64_t bytes() const { return weights_[0].size_bytes() * n(); }
  int64_t n() const { return static_cast<int64_t>(weights_.size()); }
  const PackedWeight& operator[](int64_t i) const { return weights_[i]; }

 private:
  std::vector<PackedWeight> weights_;
};

class LinearBench {
 public:
  explicit LinearBench(int n_threads) : pool_(n_threads) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    x_.resize(kRows[std::size(kRows) - 1] * n_in_);
    for (float& v : x_) v = normal(rng);
  }

  absl::Status Run(const Format& format) {
    LK_ASSIGN_OR_RETURN(const ColdWeights weights, ColdWeights::Make(format, n_out_, n_in_, pool_));
    std::printf(
        "%-9s %5.2f", format.name,
        8.0 * static_cast<double>(weights[0].size_bytes()) / static_cast<double>(n_in_ * n_out_));
    for (const int64_t n_rows : kRows) {
      const double seconds = Seconds(weights, n_rows);
      const double amount = n_rows <= kFewRows ? static_cast<double>(weights[0].size_bytes())
                                               : 2.0 * static_cast<double>(n_rows * n_in_ * n_out_);
      std::printf(n_rows <= kFewRows ? " %6.1f" : " %6.0f", amount / seconds * 1e-9);
    }
    std::printf("\n");
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  // Returns the time of one product.
  double Seconds(const ColdWeights& weights, int64_t n_rows) {
    const int64_t ld = RowStride(weights[0].n_out_padded());
    y_.resize(std::max<size_t>(y_.size(), n_rows * ld));
    const int64_t n = n_rows <= kFewRows ? weights.n() : std::min<int64_t>(weights.n(), 4);
    double best = 1e30;
    for (int run = 0; run < absl::GetFlag(FLAGS_runs); ++run) {
      const absl::Time start = absl::Now();
      for (int64_t i = 0; i < n; ++i) {
        Linear(weights[i], {x_.data(), n_in_}, n_rows, y_.data(), ld, pool_);
      }
      best = std::min(best, absl::ToDoubleSeconds(absl::Now() - start) / static_cast<double>(n));
    }
    return best;
  }

  const int64_t n_in_ = absl::GetFlag(FLAGS_n_in), n_out_ = absl::GetFlag(FLAGS_n_out);
  ThreadPool pool_;
  std::vector<float> x_, y_;
};

absl::Status RunAll() {
  int n_threads = absl::GetFlag(FLAGS_threads);
  if (n_threads <= 0) n_threads = static_cast<int>(std::thread::hardware_concurrency());
  if (absl::GetFlag(FLAGS_n_in) <= 0 || absl::GetFlag(FLAGS_n_in) % 256 != 0) {
    return absl::InvalidArgumentError("--n_in: expected a multiple of 256");
  }
  LK_ASSIGN_OR_RETURN(const MachineLimits limits, MeasureMachine(n_threads));
  std::printf("%s, %d threads: peak %.0f GFLOP/s (fp32), read %.1f GB/s\n",
              std::string(Kernels().name).c_str(), n_threads, limits.peak_flops * 1e-9,
              limits.read_bytes_per_second * 1e-9);
  std::printf("                GB/s, rows           GFLOP/s, rows\nformat     bits");
  for (const int64_t n_rows : kRows) std::printf(" %6d", static_cast<int>(n_rows));
  std::printf("\n");
  LinearBench bench(n_threads);
  for (const Format& format : kFormats) {
    if (std::string(format.name).find(absl::GetFlag(FLAGS_only)) == std::string::npos) continue;
    LK_RETURN_IF_ERROR(bench.Run(format));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Speed of products by weight format and number of rows.");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::RunAll();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
