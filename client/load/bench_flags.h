#ifndef LOWKEY_CLIENT_LOAD_BENCH_FLAGS_H_
#define LOWKEY_CLIENT_LOAD_BENCH_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/run_point.h"
#include "client/load/statistics.h"
#include "client/load/workload.h"
#include "server/config/flags.h"

namespace lowkey {

// The load of one point is a rate or a concurrency; without either the trace's arrivals count.
struct LoadLevel {
  std::optional<double> rate_per_s = {};
  std::optional<int32_t> concurrency = {};
};

// The run that the flags of `lowkey bench` describe.
struct BenchPlan {
  WorkloadOptions workload;  // fields that depend on the model are unset
  std::vector<LoadLevel> levels;
  double burstiness = 1;
  // If absent, MakePoint derives them from duration, trace and concurrency.
  std::optional<int64_t> n_requests;  // counted requests
  std::optional<int64_t> n_warmup;    // uncounted requests before them
  std::optional<double> duration_s, timeout_s;
  Slo slo;
};

std::vector<FlagGroup> BenchFlagGroups();

// INVALID_ARGUMENT names the flag or the file's line; ReadTextFile's errors for the trace.
absl::StatusOr<BenchPlan> ReadBenchPlan(const FlagValues& flags);

// Reads --attention: shares such as "standard=0.7,atp --rank 1/8=0.3", or generate's form.
absl::StatusOr<std::vector<MixShare>> ReadMix(const FlagValues& flags);

// Returns the options of the point at `index` of the plan's levels.
PointOptions MakePoint(const BenchPlan& plan, size_t index);

// Returns the names and values of the flags that a report repeats.
std::vector<std::pair<std::string, std::string>> SetFlags(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_BENCH_FLAGS_H_
