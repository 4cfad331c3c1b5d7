#include "bench/machine.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/kernels.h"

namespace lowkey {
namespace {

constexpr int kRuns = 7;
constexpr int64_t kFmaTurns = 20'000'000;
constexpr size_t kReadBytes = size_t{512} << 20;

// Seconds of the fastest of kRuns.
double BestSeconds(absl::FunctionRef<void()> body) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const absl::Time start = absl::Now();
    body();
    best = std::min(best, absl::ToDoubleSeconds(absl::Now() - start));
  }
  return best;
}

}  // namespace

absl::StatusOr<MachineLimits> MeasureMachine(int n_threads) {
  const KernelTable& kernels = Kernels();
  ThreadPool pool(n_threads);
  MachineLimits limits;
  limits.n_threads = n_threads;
  volatile float sink = 0;

  const double fma_seconds = BestSeconds([&] {
    pool.ParallelFor(n_threads, [&](int64_t, int) { sink = kernels.fma_chains(kFmaTurns); });
  });
  const double flops = 2.0 * 5 * static_cast<double>(kernels.panel_columns) * kFmaTurns;
  limits.peak_flops = flops * n_threads / fma_seconds;

  LK_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(kReadBytes));
  std::fill_n(buffer.as<float>(), kReadBytes / sizeof(float), 1.0f);
  int64_t read_bytes = 0;
  const double read_seconds = BestSeconds([&] { read_bytes = ReadThrough(buffer, pool); });
  limits.read_bytes_per_second = static_cast<double>(read_bytes) / read_seconds;
  return limits;
}

int64_t ReadThrough(const Buffer& buffer, ThreadPool& pool) {
  const KernelTable& kernels = Kernels();
  const int64_t n_threads = pool.n_threads(), chunk = 8 * kernels.panel_columns;
  const auto n_floats = static_cast<int64_t>(buffer.size_bytes() / sizeof(float));
  const int64_t part = n_floats / n_threads / chunk * chunk;
  volatile float sink = 0;
  pool.ParallelFor(n_threads, [&](int64_t i, int) {
    sink = kernels.read_sum(buffer.as<float>() + i * part, part);
  });
  return part * n_threads * static_cast<int64_t>(sizeof(float));
}

}  // namespace lowkey
