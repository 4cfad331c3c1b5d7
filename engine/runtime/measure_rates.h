#ifndef LOWKEY_ENGINE_RUNTIME_MEASURE_RATES_H_
#define LOWKEY_ENGINE_RUNTIME_MEASURE_RATES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/attention_options.h"
#include "engine/config/selection_rules.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

namespace lowkey {

struct RateOptions {
  EngineOptions engine;          // threads and dtype
  std::vector<int64_t> lengths;  // ascending, each 64..2^20
  std::vector<AttentionOptions> mechanisms;
  bool leaves_out_missing = true;  // what the model cannot do; if not, it is an error
  int n_decode_runs = 9;           // the median run counts
};

// The time that attention took at one length, for all layers; projections left out.
struct RatePoint {
  int64_t n_tokens = 0;
  double prefill_seconds = 0;  // a prompt of n_tokens
  double decode_seconds = 0;   // one token that sees n_tokens
  int64_t cache_bytes = 0;     // held by a sequence of n_tokens that generates
  // Multiply-adds by the formulas.
  double prefill_work = 0, decode_work = 0;
};

struct MechanismRates {
  AttentionOptions options;
  std::vector<RatePoint> points;  // by length, as far as the mechanism goes
};

struct MeasuredRates {
  std::vector<MechanismRates> mechanisms;
  SelectionProfile profile;  // the rates: work over time, at every length
};

// Measures the attention of a model's shape on this machine: random rows through one of its layers,
// whose time is multiplied by their number. Reads no weights but a bundle's. `progress` is called
// with (steps done, steps in all). INVALID_ARGUMENT for lengths or dtype;
// RESOURCE_EXHAUSTED when memory cannot be had.
absl::StatusOr<MeasuredRates> MeasureRates(const Checkpoint& checkpoint, const RateOptions& options,
                                           const std::function<void(int64_t, int64_t)>& progress);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MEASURE_RATES_H_
