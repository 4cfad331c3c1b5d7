// Predicts what requests cost, by mechanism and length.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/attention/selection/selection.h"

namespace lowkey {
namespace {

CostPoint CostAt(const SelectionCandidate& candidate, const SelectionProfile& profile,
                 int64_t n_tokens, int64_t n_new_tokens) {
  CostPoint point;
  point.n_tokens = n_tokens;
  point.prefill_seconds = PredictSeconds(candidate, profile, {n_tokens, 0});
  point.decode_seconds =
      std::max(0.0, PredictSeconds(candidate, profile, {n_tokens, 1}) - point.prefill_seconds);
  point.request_seconds = PredictSeconds(candidate, profile, {n_tokens, n_new_tokens});
  point.cache_bytes = PredictBytes(candidate, {n_tokens, n_new_tokens});
  return point;
}

}  // namespace

CostTable PredictCosts(absl::Span<const SelectionCandidate> candidates,
                       const SelectionProfile& profile, const CostQuery& query,
                       std::optional<double> max_perplexity_ratio, int64_t max_tokens) {
  CostTable table;
  table.profile = profile.name;
  for (const SelectionCandidate& candidate : candidates) {
    MechanismCosts& costs = table.mechanisms.emplace_back();
    costs.options = candidate.options;
    costs.is_approximate = candidate.is_approximate;
    const int64_t most =
        std::min(max_tokens, candidate.mechanism->max_tokens().value_or(max_tokens)) -
        query.n_new_tokens;
    for (const int64_t n : query.lengths) {
      if (n <= most) costs.points.push_back(CostAt(candidate, profile, n, query.n_new_tokens));
    }
  }
  const RequestLengths shortest = {kPageTokens, query.n_new_tokens};
  for (const Objective objective :
       {Objective::kLatency, Objective::kBalanced, Objective::kMemory}) {
    for (const bool allow_approximate : {false, true}) {
      SelectionByLength& by_length = table.selections.emplace_back();
      by_length.rules.objective = objective;
      by_length.rules.allow_approximate = allow_approximate;
      by_length.rules.max_perplexity_ratio = max_perplexity_ratio;
      auto selection = SelectMechanism(candidates, profile, by_length.rules, shortest, max_tokens);
      if (!selection.ok()) continue;
      by_length.first = selection->options.mechanism;
      by_length.crossovers = std::move(selection->crossovers);
    }
  }
  return table;
}

}  // namespace lowkey
