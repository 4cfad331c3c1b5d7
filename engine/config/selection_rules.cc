#include "engine/config/selection_rules.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr std::pair<Objective, std::string_view> kObjectives[] = {
    {Objective::kLatency, "latency"},
    {Objective::kMemory, "memory"},
    {Objective::kBalanced, "balanced"},
};

}  // namespace

MechanismRates SelectionProfile::RatesOf(Mechanism id) const {
  const auto it = mechanisms.find(id);
  return it == mechanisms.end() ? MechanismRates{} : it->second;
}

std::string_view ObjectiveName(Objective objective) {
  for (const auto& [value, name] : kObjectives) {
    if (value == objective) return name;
  }
  return "unknown";
}

absl::StatusOr<Objective> ParseObjective(std::string_view text) {
  for (const auto& [value, name] : kObjectives) {
    if (name == text) return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown objective \"", std::string(text),
                                                 "\", expected latency, memory or balanced"));
}

}  // namespace lowkey
