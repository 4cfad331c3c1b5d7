#ifndef LOWKEY_CLIENT_LOAD_STATISTICS_H_
#define LOWKEY_CLIENT_LOAD_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/load/run_point.h"

namespace lowkey {

// Mean and percentiles (the least value that so many percent do not exceed). All 0 of no values.
struct Summary {
  int64_t n = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Summary Summarize(std::vector<double> values);

// What a request must keep to count as good. An absent bound is kept by all.
struct Slo {
  std::optional<double> ttft_ms = {};  // time to the first token
  std::optional<double> itl_ms = {};   // mean time between tokens after it
};

// Figures of a set of requests, warm-up left out. Latencies count from when a request was due.
struct GroupResult {
  std::string label;
  int64_t n_requests = 0, n_ok = 0, n_good = 0;
  int64_t n_prompt_tokens = 0, n_output_tokens = 0;  // of requests that ended well
  double requests_per_s = 0, output_tokens_per_s = 0, total_tokens_per_s = 0;
  double good_requests_per_s = 0, good_tokens_per_s = 0;  // within the SLO; output tokens
  Summary ttft_ms, itl_ms, e2e_ms;  // of requests that ended well; itl over gaps
  Summary outside_ms;               // end to end less the server's own account of it
  Summary refusal_ms;               // until a request ended with an error and without a token
  std::map<std::string, int64_t> errors = {};  // by gRPC code
  double mean_cache_bytes = 0;                 // of each request's own peak
};

struct PointResult {
  std::optional<double> rate_per_s;
  std::optional<int32_t> concurrency;
  double seconds = 0;  // from the first request that counts to the end of the last
  int64_t n_warmup = 0, n_cut = 0;
  GroupResult all;
  std::vector<GroupResult> mechanisms;  // one per mix item
  double cpu_cores = 0;
  Summary lag_ms, wake_ms;  // GeneratorUse
  std::optional<ServerPeak> server;
};

// The figures of `run` into `result`, but for rate and concurrency, which are the caller's.
void Evaluate(const PointRun& run, const std::vector<MixItem>& mix, const Slo& slo,
              PointResult& result);

// Mean milliseconds between a stream's tokens; absent with fewer than two.
std::optional<double> MeanGapMs(const StreamRecord& stream);

// Where the generator runs.
struct GeneratorMachine {
  int32_t n_cores = 1;
  bool is_servers = false;  // the server's own machine
};

// What a reader of the figures should know, in sentences: above all whether the generator itself
// was the bottleneck. Empty: nothing to say.
std::vector<std::string> Notes(const PointResult& result, const GeneratorMachine& machine);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_STATISTICS_H_
