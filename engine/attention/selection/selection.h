#ifndef LOWKEY_ENGINE_ATTENTION_SELECTION_SELECTION_H_
#define LOWKEY_ENGINE_ATTENTION_SELECTION_SELECTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/config/mechanism_costs.h"
#include "engine/config/perplexity_ratios.h"
#include "engine/config/selection_rules.h"

namespace lowkey {

// Chooses a mechanism for a request by its predicted cost (docs/selection.md).

// One mechanism of a model.
struct SelectionCandidate {
  const AttentionMechanism* mechanism = nullptr;
  AttentionOptions options;
  double projection_work = 0;          // multiply-adds per token in its linear maps, all layers
  PerplexityRatios perplexity_ratios;  // empty: not measured; unused for exact standard
  bool is_approximate = false;         // approximates what the model's weights compute exactly
};

struct RequestLengths {
  int64_t n_prompt_tokens = 0;
  int64_t n_new_tokens = 0;  // of each choice
  int64_t n_choices = 1;     // answers that share the prompt and are generated together
};

// Returns the predicted seconds of attention and projections for the whole request.
double PredictSeconds(const SelectionCandidate& candidate, const SelectionProfile& profile,
                      const RequestLengths& lengths);
// Returns the predicted bytes of cache at the end of the request, of all its choices.
int64_t PredictBytes(const SelectionCandidate& candidate, const RequestLengths& lengths);

struct Selection {
  AttentionOptions options;
  std::string reason;                 // "auto, latency: standard 1.12 s, 3.5 MiB, 1; efficient .."
  std::vector<Crossover> crossovers;  // in ascending order, up to max_tokens
};

// Returns the candidate that the rules ask for: least time, least bytes, or (balanced) the best
// quality whose time is within the margin of the least. Quality is the perplexity ratio measured at
// the request's length; exact standard attention has 1. Candidates above rules.max_perplexity_ratio
// (which must be set) are left out, and so are unmeasured ones. The choice depends on the arguments
// alone, never on load. FAILED_PRECONDITION when no candidate is allowed, good and long enough.
absl::StatusOr<Selection> SelectMechanism(absl::Span<const SelectionCandidate> candidates,
                                          const SelectionProfile& profile,
                                          const SelectionRules& rules,
                                          const RequestLengths& lengths, int64_t max_tokens);

// Returns what each candidate costs at the query's lengths, and what selection takes by length
// under every objective, without and with approximation, at this floor of quality. Prompt and new
// tokens are at most max_tokens together; longer prompts are left out.
CostTable PredictCosts(absl::Span<const SelectionCandidate> candidates,
                       const SelectionProfile& profile, const CostQuery& query,
                       std::optional<double> max_perplexity_ratio, int64_t max_tokens);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SELECTION_SELECTION_H_
