#ifndef LOWKEY_CLIENT_LOAD_STATISTICS_H_
#define LOWKEY_CLIENT_LOAD_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/load/run_point.h"

namespace lowkey {

// Mean and percentiles (pN is the least value that N percent do not exceed); 0 without values.
struct Summary {
  int64_t n = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Summary Summarize(std::vector<double> values);

// The bounds within which a request counts as good. Every request keeps an absent bound.
struct Slo {
  std::optional<double> ttft_ms = {};  // time to the first token
  std::optional<double> itl_ms = {};   // mean time between tokens after it
};

// Figures of a set of requests without warm-up. Latencies count from when a request was due.
struct GroupResult {
  std::string label;
  int64_t n_requests = 0, n_ok = 0, n_good = 0;
  int64_t n_prompt_tokens = 0, n_output_tokens = 0;  // over requests that ended well
  double requests_per_s = 0, output_tokens_per_s = 0, total_tokens_per_s = 0;
  double good_requests_per_s = 0, good_tokens_per_s = 0;  // within the SLO; output tokens
  Summary ttft_ms, itl_ms, e2e_ms;  // over requests that ended well; itl over gaps
  Summary outside_ms;               // end to end minus the server's own account
  Summary refusal_ms;               // until a request ended with an error and without a token
  std::map<std::string, int64_t> errors = {};  // by gRPC code
  double mean_cache_bytes = 0;                 // mean of the requests' peaks
};

struct PointResult {
  std::optional<double> rate_per_s;
  std::optional<int32_t> concurrency;
  double seconds = 0;  // from the first counted request to the last end
  int64_t n_warmup = 0, n_cut = 0;
  GroupResult all;
  std::vector<GroupResult> mechanisms;  // one per share of the mix
  double cpu_cores = 0;
  Summary lag_ms, wake_ms;           // GeneratorUse
  std::optional<ServerLoad> server;  // its peak
};

// Sets the figures of `run` in `result`; the caller sets rate and concurrency.
void Evaluate(const PointRun& run, const std::vector<MixShare>& mix, const Slo& slo,
              PointResult& result);

// Returns the mean milliseconds between a stream's tokens; nullopt with fewer than two.
std::optional<double> MeanGapMs(const StreamRecord& stream);

// The machine that the generator runs on.
struct GeneratorMachine {
  int32_t n_cores = 1;
  bool is_servers = false;  // also the server's machine
};

// Returns sentences that a reader of the figures should know, above all whether the generator was
// the bottleneck.
std::vector<std::string> Notes(const PointResult& result, const GeneratorMachine& machine);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_STATISTICS_H_
