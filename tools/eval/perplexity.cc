#include "tools/eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"

namespace lowkey {
namespace {

absl::Status ScoreWindow(Engine& engine, absl::Span<const int32_t> tokens,
                         const PerplexityWindow& window, const PerplexityOptions& options,
                         PerplexityResult& result) {
  TextToScore text;
  if (options.first_token.has_value()) text.tokens.push_back(*options.first_token);
  text.tokens.insert(text.tokens.end(), tokens.begin() + window.begin, tokens.begin() + window.end);
  text.n_scored = window.n_scored;
  LK_ASSIGN_OR_RETURN(const std::vector<ScoredText> scored,
                      ScoreTexts(engine, {std::move(text)}, 0, options.reading));
  for (const PromptLogprob& p : scored[0].logprobs) result.negative_logprob -= p.token.logprob;
  result.n_scored += static_cast<int64_t>(scored[0].logprobs.size());
  ++result.n_windows;
  result.cost.Add(scored[0]);
  return absl::OkStatus();
}

}  // namespace

double PerplexityResult::perplexity() const {
  return std::exp(negative_logprob / static_cast<double>(n_scored));
}

absl::StatusOr<std::vector<PerplexityWindow>> CutWindows(int64_t n_tokens,
                                                         const PerplexityOptions& options) {
  constexpr int64_t kMaxContext = int64_t{1} << 24;
  LK_RETURN_IF_ERROR(CheckRange("context", options.context_tokens, 2, kMaxContext));
  LK_RETURN_IF_ERROR(CheckRange("stride", options.stride_tokens, 1, options.context_tokens));
  if (options.max_windows.has_value()) {
    LK_RETURN_IF_ERROR(CheckRange("windows", *options.max_windows, 1, kMaxContext));
  }
  const bool has_first = options.first_token.has_value();
  const int64_t length = options.context_tokens - (has_first ? 1 : 0);
  if (n_tokens < length) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: ", n_tokens, " tokens, expected at least one window of ", length));
  }
  const int64_t n_fit = (n_tokens - length) / options.stride_tokens + 1;
  std::vector<PerplexityWindow> windows;
  for (int64_t i = 0; i < std::min(n_fit, options.max_windows.value_or(n_fit)); ++i) {
    const int64_t begin = i * options.stride_tokens;
    // Nothing predicts the first token of the text.
    windows.push_back(
        {begin, begin + length, std::min(options.stride_tokens, options.context_tokens - 1)});
  }
  return windows;
}

absl::StatusOr<PerplexityResult> MeasurePerplexity(
    Engine& engine, absl::Span<const int32_t> tokens, const PerplexityOptions& options,
    absl::FunctionRef<void(int64_t done, int64_t all)> progress) {
  LK_ASSIGN_OR_RETURN(const std::vector<PerplexityWindow> windows,
                      CutWindows(static_cast<int64_t>(tokens.size()), options));
  PerplexityResult result;
  for (const PerplexityWindow& window : windows) {
    progress(result.n_windows, static_cast<int64_t>(windows.size()));
    LK_RETURN_IF_ERROR(ScoreWindow(engine, tokens, window, options, result));
  }
  progress(result.n_windows, static_cast<int64_t>(windows.size()));
  return result;
}

}  // namespace lowkey
