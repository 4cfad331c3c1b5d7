#ifndef LOWKEY_TOOLS_EVAL_PERPLEXITY_H_
#define LOWKEY_TOOLS_EVAL_PERPLEXITY_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "tools/eval/scored_text.h"

namespace lowkey {

// The windows of a long text: one of `context_tokens` begins every `stride_tokens` and is scored on
// its last `stride_tokens` tokens, so that every scored token is predicted from at least
// context_tokens - stride_tokens tokens before it. The rest at the end is not scored.
struct PerplexityOptions {
  int64_t context_tokens = 2048;            // 2 up to the model's context, with first_token
  int64_t stride_tokens = 1024;             // 1..context_tokens
  std::optional<int64_t> max_windows = {};  // >= 1; unset: all that fit
  std::optional<int32_t> first_token = {};  // stands at the head of every window (bos)
  Reading reading = {};
};

struct PerplexityResult {
  int64_t n_windows = 0;
  int64_t n_scored = 0;         // tokens
  double negative_logprob = 0;  // over the scored tokens, natural logarithm
  EvalCost cost = {};
  double perplexity() const;  // exp(negative_logprob / n_scored)
};

// A window takes the tokens [begin, end) of the text and scores the last n_scored of them.
struct PerplexityWindow {
  int64_t begin = 0, end = 0;
  int64_t n_scored = 0;
};

// INVALID_ARGUMENT if an option is out of its range or the text is shorter than one window.
absl::StatusOr<std::vector<PerplexityWindow>> CutWindows(int64_t n_tokens,
                                                         const PerplexityOptions& options);

// Scores `tokens` through the engine, one window after another; progress(done, all) after each.
// Errors are those of CutWindows and ScoreTexts.
absl::StatusOr<PerplexityResult> MeasurePerplexity(
    Engine& engine, absl::Span<const int32_t> tokens, const PerplexityOptions& options,
    absl::FunctionRef<void(int64_t done, int64_t all)> progress);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_PERPLEXITY_H_
