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

// The load of one point: a rate, a concurrency, or neither, which is the trace's own arrivals.
struct LoadLevel {
  std::optional<double> rate_per_s = {};
  std::optional<int32_t> concurrency = {};
};

// What the flags of `lowkey bench` ask for.
struct BenchPlan {
  WorkloadOptions workload;  // what depends on the model is not set yet
  std::vector<LoadLevel> levels;
  double burstiness = 1;
  // Absent: the point's own, by duration, trace and concurrency.
  std::optional<int64_t> n_requests;  // that count
  std::optional<int64_t> n_warmup;    // before them
  std::optional<double> duration_s, timeout_s;
  Slo slo;
};

std::vector<FlagGroup> BenchFlagGroups();

// INVALID_ARGUMENT naming the flag, or the file's line; NOT_FOUND when the trace cannot be read.
absl::StatusOr<BenchPlan> ReadBenchPlan(const FlagValues& flags);

// --attention as shares of the requests, "standard=0.7,atp --rank 1/8=0.3", or what generate takes.
absl::StatusOr<std::vector<MixItem>> ReadMix(const FlagValues& flags);

// The point at `index` of the plan's levels.
PointOptions MakePoint(const BenchPlan& plan, size_t index);

// Flags that have a value and matter, by name: what a report repeats.
std::vector<std::pair<std::string, std::string>> SetFlags(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_BENCH_FLAGS_H_
