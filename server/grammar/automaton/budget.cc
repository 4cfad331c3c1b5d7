#include "server/grammar/automaton/budget.h"

#include "absl/strings/str_cat.h"

namespace lowkey::grammar {

absl::Status Budget::Charge(int64_t n_units) {
  n_units_ += n_units;
  if (n_units_ > kMaxUnits) {
    return absl::InvalidArgumentError(
        absl::StrCat("too complex: over ", kMaxUnits, " steps of work, expected at most that"));
  }
  return Count(interrupt_, static_cast<size_t>(n_units));
}

absl::Status Budget::ChargeStates(int64_t n_states) {
  n_states_ += n_states;
  if (n_states_ <= kMaxStates) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("too complex: over ", kMaxStates, " automaton states, expected at most that"));
}

}  // namespace lowkey::grammar
