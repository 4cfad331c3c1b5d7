#include "engine/attention/selection/selection.h"

#include <algorithm>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/config/attention_option_table.h"

namespace lowkey {
namespace {

// A candidate's cost and quality for a request.
struct Bid {
  const SelectionCandidate* candidate = nullptr;
  double seconds = 0;
  int64_t bytes = 0;
  double perplexity_ratio = 1;
};

bool MayRun(const SelectionCandidate& c, const SelectionRules& rules, int64_t n_tokens) {
  const Mechanism id = c.options.mechanism;
  if (!rules.allowed.empty() &&
      std::find(rules.allowed.begin(), rules.allowed.end(), id) == rules.allowed.end()) {
    return false;
  }
  if (c.is_approximate && !rules.allow_approximate) return false;
  return n_tokens <= c.mechanism->max_tokens().value_or(n_tokens);
}

std::optional<double> RatioAt(const SelectionCandidate& c, int64_t n_tokens) {
  if (c.options.mechanism == Mechanism::kStandard && !c.is_approximate) return 1.0;
  return c.perplexity_ratios.At(n_tokens);
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
    if (bid.perplexity_ratio < best->perplexity_ratio) best = &bid;
  }
  return *best;
}

std::vector<Bid> Bids(absl::Span<const SelectionCandidate> candidates,
                      const SelectionProfile& profile, const SelectionRules& rules,
                      const RequestLengths& lengths) {
  std::vector<Bid> bids;
  const int64_t n_tokens = lengths.n_prompt_tokens + lengths.n_new_tokens;
  for (const SelectionCandidate& c : candidates) {
    const std::optional<double> ratio = RatioAt(c, n_tokens);
    if (!MayRun(c, rules, n_tokens) || !ratio.has_value()) continue;
    if (*ratio > rules.max_perplexity_ratio.value_or(kDefaultMaxPerplexityRatio)) continue;
    bids.push_back({&c, PredictSeconds(c, profile, lengths), PredictBytes(c, lengths), *ratio});
  }
  return bids;
}

// Returns the prompts' lengths, in whole pages up to max_tokens, from which on another mechanism
// wins, until there is none. Steps grow by a 64th of the length; each change is found to the page.
std::vector<Crossover> FindCrossovers(
    int64_t max_tokens, absl::FunctionRef<std::optional<Mechanism>(int64_t n_tokens)> winner_at) {
  std::vector<Crossover> crossovers;
  const int64_t n_pages = max_tokens / kPageTokens;
  if (n_pages < 1) return crossovers;
  std::optional<Mechanism> before = winner_at(kPageTokens);
  for (int64_t page = 1; page < n_pages && before.has_value();) {
    int64_t next = std::min(n_pages, page + std::max<int64_t>(1, page / 64));
    std::optional<Mechanism> after = winner_at(next * kPageTokens);
    if (after != before) {
      while (next - page > 1) {
        const int64_t middle = page + (next - page) / 2;
        (winner_at(middle * kPageTokens) == before ? page : next) = middle;
      }
      after = winner_at(next * kPageTokens);
      if (after.has_value()) crossovers.push_back({*before, *after, next * kPageTokens});
    }
    before = after;
    page = next;
  }
  return crossovers;
}

// Names everything that was compared, in time, bytes and perplexity ratio, and by which profile.
std::string Reason(const std::vector<Bid>& bids, const Bid& winner, const SelectionRules& rules,
                   const SelectionProfile& profile) {
  std::string text = absl::StrCat(
      "auto, ", std::string(NameOf(rules.objective)), ", ",
      profile.name.empty() ? "no profile" : absl::StrCat("profile ", profile.name), ":");
  for (const Bid& bid : bids) {
    absl::StrAppend(
        &text, &bid == &bids[0] ? " " : "; ", AttentionLabel(bid.candidate->options),
        absl::StrFormat(" %.3g s, %.3g MiB, perplexity x %.3f", bid.seconds,
                        static_cast<double>(bid.bytes) / (1 << 20), bid.perplexity_ratio),
        &bid == &winner ? " (taken)" : "");
  }
  return text;
}

}  // namespace

double PredictSeconds(const SelectionCandidate& c, const SelectionProfile& profile,
                      const RequestLengths& lengths) {
  const auto n_prompt = static_cast<double>(lengths.n_prompt_tokens);
  const auto n_new = static_cast<double>(lengths.n_new_tokens);
  const auto n_choices = static_cast<double>(lengths.n_choices);
  const std::vector<AttentionRate>* const rates = profile.RatesOf(c.options);
  double seconds = c.projection_work * n_new * n_choices / profile.LinearRateOf(lengths.n_choices);
  if (lengths.n_prompt_tokens > 0) {
    seconds += c.projection_work * n_prompt / profile.LinearRateOf(lengths.n_prompt_tokens);
    seconds += c.mechanism->Work(c.options, lengths.n_prompt_tokens).prefill /
               SelectionProfile::RateAt(rates, lengths.n_prompt_tokens).prefill;
  }
  // A token's cost changes with its depth, in leaps where a mechanism changes its form: the middles
  // of equal parts of the generation stand for all.
  constexpr int kParts = 8;
  for (int part = 0; part < kParts; ++part) {
    const int64_t depth =
        lengths.n_prompt_tokens + lengths.n_new_tokens * (2 * part + 1) / (2 * kParts);
    seconds += n_choices * n_new / kParts * c.mechanism->Work(c.options, depth).decode /
               SelectionProfile::RateAt(rates, depth).decode;
  }
  return seconds;
}

// Choices share the prompt's pages, which are the bytes that grow with a sequence. A state does not
// grow, and each choice has its own.
int64_t PredictBytes(const SelectionCandidate& c, const RequestLengths& lengths) {
  const int64_t n_tokens = std::max<int64_t>(1, lengths.n_prompt_tokens + lengths.n_new_tokens);
  const int64_t held = c.mechanism->HeldBytes(c.options, n_tokens);
  if (lengths.n_choices == 1) return held;
  const int64_t shared = c.mechanism->SharedBytes(c.options, lengths.n_prompt_tokens, n_tokens);
  return lengths.n_choices * held - (lengths.n_choices - 1) * shared;
}

absl::StatusOr<Selection> SelectMechanism(absl::Span<const SelectionCandidate> candidates,
                                          const SelectionProfile& profile,
                                          const SelectionRules& rules,
                                          const RequestLengths& lengths, int64_t max_tokens) {
  const std::vector<Bid> bids = Bids(candidates, profile, rules, lengths);
  if (bids.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "attention.mechanism: auto found no mechanism among those allowed for ",
        lengths.n_prompt_tokens + lengths.n_new_tokens,
        " tokens with a measured perplexity of at most ",
        rules.max_perplexity_ratio.value_or(kDefaultMaxPerplexityRatio),
        " times standard's (max_perplexity_ratio); approximate ones are taken only where "
        "allow_approximate says so"));
  }
  const Bid& winner = Winner(bids, rules);
  return Selection{
      winner.candidate->options, Reason(bids, winner, rules, profile),
      FindCrossovers(max_tokens - lengths.n_new_tokens, [&](int64_t n_tokens) {
        const std::vector<Bid> at =
            Bids(candidates, profile, rules, {n_tokens, lengths.n_new_tokens, lengths.n_choices});
        return at.empty()
                   ? std::nullopt
                   : std::optional<Mechanism>(Winner(at, rules).candidate->options.mechanism);
      })};
}

}  // namespace lowkey
