#ifndef LOWKEY_CLIENT_LOAD_WORKLOAD_H_
#define LOWKEY_CLIENT_LOAD_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/load/lengths.h"
#include "client/load/trace.h"
#include "server/request/request.h"

namespace lowkey {

// A share of the requests and the attention that they choose.
struct MixShare {
  std::string label;
  AttentionChoice attention = {};
  double weight = 1;  // > 0
};

struct WorkloadOptions {
  LengthDistribution prompt_lengths, output_lengths;
  std::vector<TraceRow> trace = {};  // if not empty, gives the lengths, cyclically
  std::vector<MixShare> mix = {};    // 1 or more
  SamplingChoice sampling = {};      // each request has its own seed
  uint64_t seed = 1;

  // Properties of the served model.
  int32_t vocab_size = 1;
  int32_t context_tokens = 2;                // 2 or more
  std::vector<int32_t> special_tokens = {};  // do not occur in a random prompt
  TokenList text = {};                       // prompts are cut from it; random if empty
};

struct PlannedRequest {
  GenerationRequest request;
  size_t mix_index = 0;
  int32_t n_prompt_tokens = 0;
  bool is_cut = false;  // the prompt lost its end: the context is shorter than the draw
};

// The requests of a load; each depends on seed, sweep point and index alone. Generation continues
// past the end of sequence, so that an output has the drawn length.
class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  // Returns a request. Points of a sweep have the same lengths and mechanisms in the same order and
  // different prompts, so that no prompt is found in a cache.
  PlannedRequest At(int64_t point, int64_t index) const;

  const std::vector<MixShare>& mix() const { return options_.mix; }

 private:
  TokenList Prompt(int32_t n_tokens, std::mt19937_64& random) const;

  WorkloadOptions options_;
};

// Arrivals of `rate_per_s` requests a second on average. Gaps are gamma distributed with shape
// `burstiness`: 1 is a Poisson process, less comes in bursts, more is evenly spaced. DrawArrivals
// returns at most `n` arrival times in seconds and stops at the first that would pass `limit_s`.
struct ArrivalOptions {
  double rate_per_s = 1;  // > 0
  double burstiness = 1;  // > 0
  uint64_t seed = 1;
  double limit_s = 1e9;
};
std::vector<double> DrawArrivals(const ArrivalOptions& options, int64_t n);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_WORKLOAD_H_
