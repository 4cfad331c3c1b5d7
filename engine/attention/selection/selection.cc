#include "engine/attention/selection/selection.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lowkey {
namespace {

// A candidate's cost for a request.
struct Bid {
  const SelectionCandidate* candidate = nullptr;
  double seconds = 0;
  int64_t bytes = 0;
};

std::string NameOf(const SelectionCandidate& c) {
  return std::string(MechanismName(c.options.mechanism));
}

bool MayRun(const SelectionCandidate& c, const SelectionRules& rules, int64_t n_tokens) {
  const Mechanism id = c.options.mechanism;
  if (!rules.allowed.empty() &&
      std::find(rules.allowed.begin(), rules.allowed.end(), id) == rules.allowed.end()) {
    return false;
  }
  if (IsApproximate(c.options) && !rules.allow_approximate) return false;
  return n_tokens <= c.mechanism->max_tokens().value_or(n_tokens);
}

// Returns an order of quality, best first.
std::tuple<double, int> QualityOrder(const SelectionCandidate& c) {
  const Mechanism id = c.options.mechanism;
  if (id == Mechanism::kStandard) return {1.0, IsApproximate(c.options) ? 2 : 0};
  if (c.perplexity_ratio.has_value()) return {*c.perplexity_ratio, 1};
  return {std::numeric_limits<double>::infinity(), id == Mechanism::kAtp ? 2 : 3};
}

const Bid& Winner(const std::vector<Bid>& bids, const SelectionRules& rules) {
  const auto faster = [](const Bid& a, const Bid& b) { return a.seconds < b.seconds; };
  const Bid& fastest = *std::min_element(bids.begin(), bids.end(), faster);
  if (rules.objective == Objective::kLatency) return fastest;
  if (rules.objective == Objective::kMemory) {
    return *std::min_element(bids.begin(), bids.end(),
                             [](const Bid& a, const Bid& b) { return a.bytes < b.bytes; });
  }
  const Bid* best = &fastest;
  for (const Bid& bid : bids) {
    if (bid.seconds > rules.margin * fastest.seconds) continue;
    if (QualityOrder(*bid.candidate) < QualityOrder(*best->candidate)) best = &bid;
  }
  return *best;
}

std::vector<Bid> Bids(absl::Span<const SelectionCandidate> candidates,
                      const SelectionProfile& profile, const SelectionRules& rules,
                      const RequestLengths& lengths) {
  std::vector<Bid> bids;
  for (const SelectionCandidate& c : candidates) {
    if (!MayRun(c, rules, lengths.n_prompt_tokens + lengths.n_new_tokens)) continue;
    bids.push_back({&c, PredictSeconds(c, profile, lengths), PredictBytes(c, lengths)});
  }
  return bids;
}

std::string Reason(const std::vector<Bid>& bids, const Bid& winner, const SelectionRules& rules) {
  std::string text = absl::StrCat("auto, ", std::string(NameOf(rules.objective)), ":");
  for (const Bid& bid : bids) {
    absl::StrAppend(&text, &bid == &bids[0] ? " " : "; ", NameOf(*bid.candidate),
                    absl::StrFormat(" %.3g s, %.3g MiB", bid.seconds,
                                    static_cast<double>(bid.bytes) / (1 << 20)),
                    &bid == &winner ? " (taken)" : "");
  }
  return text;
}

}  // namespace

double PredictSeconds(const SelectionCandidate& c, const SelectionProfile& profile,
                      const RequestLengths& lengths) {
  const MechanismRates rates = profile.RatesOf(c.options.mechanism);
  const auto n_prompt = static_cast<double>(lengths.n_prompt_tokens);
  const auto n_new = static_cast<double>(lengths.n_new_tokens);
  const AttentionWork prompt = c.mechanism->Work(c.options, lengths.n_prompt_tokens);
  // Tokens are generated at depths around the middle of what is generated.
  const AttentionWork middle =
      c.mechanism->Work(c.options, lengths.n_prompt_tokens + lengths.n_new_tokens / 2);
  return c.projection_work * (n_prompt + n_new) / profile.linear + prompt.prefill / rates.prefill +
         n_new * middle.decode / rates.decode;
}

int64_t PredictBytes(const SelectionCandidate& c, const RequestLengths& lengths) {
  return c.mechanism->HeldBytes(c.options, lengths.n_prompt_tokens + lengths.n_new_tokens);
}

absl::StatusOr<Selection> SelectMechanism(absl::Span<const SelectionCandidate> candidates,
                                          const SelectionProfile& profile,
                                          const SelectionRules& rules,
                                          const RequestLengths& lengths, int64_t max_tokens) {
  const std::vector<Bid> bids = Bids(candidates, profile, rules, lengths);
  if (bids.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("attention.mechanism: auto found no mechanism among those allowed for ",
                     lengths.n_prompt_tokens + lengths.n_new_tokens,
                     " tokens; approximate ones are taken only where allow_approximate says so"));
  }
  const Bid& winner = Winner(bids, rules);
  Selection selection{winner.candidate->options, Reason(bids, winner, rules), {}};
  std::optional<Mechanism> before;
  for (int64_t n = kPageTokens; n + lengths.n_new_tokens <= max_tokens; n += kPageTokens) {
    const std::vector<Bid> at = Bids(candidates, profile, rules, {n, lengths.n_new_tokens});
    if (at.empty()) break;
    const Mechanism now = Winner(at, rules).candidate->options.mechanism;
    if (before.has_value() && now != *before) selection.crossovers.push_back({*before, now, n});
    before = now;
  }
  return selection;
}

}  // namespace lowkey
