#ifndef LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_
#define LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/attention_options.h"

namespace lowkey {

// What a request says when it leaves the choice of its mechanism to the engine (selection.h).

// How fast this machine does one mechanism's attention: multiply-adds a second.
struct MechanismRates {
  double prefill = 10e9;
  double decode = 5e9;
};

// Rates measured by `lowkey crossover`; mechanisms that are not in it have the analytic ones above.
struct SelectionProfile {
  double linear = 10e9;  // of the projections
  std::map<Mechanism, MechanismRates> mechanisms;

  MechanismRates RatesOf(Mechanism id) const;
};

enum class Objective { kLatency, kMemory, kBalanced };

// "latency", "memory", "balanced". Parse: INVALID_ARGUMENT naming the value and the known names.
std::string_view ObjectiveName(Objective objective);
absl::StatusOr<Objective> ParseObjective(std::string_view name);

struct SelectionRules {
  Objective objective = Objective::kBalanced;
  std::vector<Mechanism> allowed = {};  // empty: every candidate
  bool allow_approximate = false;       // mechanisms that approximate another one's output
  double margin = 1.25;  // balanced: how much slower than the fastest is worth quality
};

// A length at which the answer changes as a request grows: from `tokens` prompt tokens on, `to`.
struct Crossover {
  Mechanism from = Mechanism::kStandard, to = Mechanism::kStandard;
  int64_t tokens = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_
