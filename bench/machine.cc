#include "bench/machine.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/buffer.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
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
  const int64_t chunk = 8 * kernels.panel_columns;
  const auto n_floats = static_cast<int64_t>(kReadBytes / sizeof(float));
  const int64_t part = n_floats / n_threads / chunk * chunk;
  const double read_seconds = BestSeconds([&] {
    pool.ParallelFor(n_threads, [&](int64_t i, int) {
      sink = kernels.read_sum(buffer.as<float>() + i * part, part);
    });
  });
  limits.read_bytes_per_second =
      static_cast<double>(part) * n_threads * sizeof(float) / read_seconds;
  return limits;
}

}  // namespace lowkey
