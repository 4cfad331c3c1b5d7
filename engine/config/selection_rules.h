#ifndef LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_
#define LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/attention_options.h"

namespace lowkey {

// The mechanism's name in a request that leaves the choice to the engine (selection.h).
inline constexpr std::string_view kAutoMechanism = "auto";

// AttentionRate says how fast this machine computes a mechanism's attention at one length, in
// multiply-adds of the mechanism's formula a second. A rate falls with the length where the cache
// leaves the processor's own caches.
struct AttentionRate {
  int64_t n_tokens = 0;
  double prefill = 10e9;
  double decode = 5e9;
};

// LinearRate says how fast this machine multiplies some rows at once by a weight, in multiply-adds
// a second. A single row takes as long as reading the weight; more rows share the reading.
struct LinearRate {
  int64_t n_rows = 1;
  double rate = 5e9;
};

// The rates of a machine, as `lowkey crossover` measures them.
struct SelectionProfile {
  // The profile's name in reports; empty: no rates were measured.
  std::string name = {};
  // The rates of linear maps, in ascending order of rows; never empty.
  std::vector<LinearRate> linear = {{1, 5e9}, {512, 10e9}};
  // By AttentionLabel of the options that were measured, each in ascending order of lengths.
  std::map<std::string, std::vector<AttentionRate>, std::less<>> rates = {};

  // Returns the rates of the options at a length, interpolated over the length's logarithm. Options
  // that were not measured have the rates of the first ones of their mechanism that were; a
  // mechanism without measured rates has AttentionRate's defaults.
  AttentionRate RateOf(const AttentionOptions& options, int64_t n_tokens) const {
    return RateAt(RatesOf(options), n_tokens);
  }
  // The rates that RateOf reads; null where none were measured.
  const std::vector<AttentionRate>* RatesOf(const AttentionOptions& options) const;
  static AttentionRate RateAt(const std::vector<AttentionRate>* rates, int64_t n_tokens);

  // Returns the rate of linear maps over that many rows, interpolated likewise.
  double LinearRateOf(int64_t n_rows) const;
};

enum class Objective { kLatency, kMemory, kBalanced };
template <>
inline constexpr EnumNames kEnumNames<Objective> = {"objective", {"latency", "memory", "balanced"}};

// The floor of quality where neither the request nor the model's bundle has one.
inline constexpr double kDefaultMaxPerplexityRatio = 1.02;

struct SelectionRules {
  Objective objective = Objective::kBalanced;
  std::vector<Mechanism> allowed = {};  // empty: every candidate
  bool allow_approximate = false;       // mechanisms that approximate another one's output
  // Candidates of a higher perplexity over standard's at the request's length are left out, and so
  // are those whose perplexity was not measured; nullopt: the model's own floor.
  std::optional<double> max_perplexity_ratio = std::nullopt;
  double margin = 1.25;  // balanced: how much slower than the fastest is worth quality
};

// A length at which the choice changes as a request grows: from `tokens` prompt tokens on, `to` is
// chosen.
struct Crossover {
  Mechanism from = Mechanism::kStandard, to = Mechanism::kStandard;
  int64_t tokens = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_
