#ifndef LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_
#define LOWKEY_ENGINE_CONFIG_SELECTION_RULES_H_

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "engine/config/attention_options.h"

namespace lowkey {

// The mechanism's name in a request that leaves the choice to the engine (selection.h).
inline constexpr std::string_view kAutoMechanism = "auto";

// How fast this machine computes one mechanism's attention, in multiply-adds a second.
struct MechanismRates {
  double prefill = 10e9;
  double decode = 5e9;
};

// Rates measured by `lowkey crossover`. A mechanism without measured rates has the ones above.
struct SelectionProfile {
  double linear = 10e9;  // of the projections
  std::map<Mechanism, MechanismRates> mechanisms;

  MechanismRates RatesOf(Mechanism id) const {
    const auto it = mechanisms.find(id);
    return it == mechanisms.end() ? MechanismRates{} : it->second;
  }
};

enum class Objective { kLatency, kMemory, kBalanced };
template <>
inline constexpr EnumNames kEnumNames<Objective> = {"objective", {"latency", "memory", "balanced"}};

struct SelectionRules {
  Objective objective = Objective::kBalanced;
  std::vector<Mechanism> allowed = {};  // empty: every candidate
  bool allow_approximate = false;       // mechanisms that approximate another one's output
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
