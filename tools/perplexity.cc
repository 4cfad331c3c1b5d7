#include "tools/perplexity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"

namespace lowkey {
namespace {

struct WindowOutcome {
  double negative_logprob = 0;
  int64_t n_scored = 0;
  FinalEvent event;
  absl::Notification done;
};

class WindowSink : public Sink {
 public:
  explicit WindowSink(WindowOutcome& outcome) : outcome_(outcome) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    for (const PromptLogprob& p : logprobs) outcome_.negative_logprob -= p.token.logprob;
    outcome_.n_scored = static_cast<int64_t>(logprobs.size());
  }
  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kStop; }
  void OnDone(const FinalEvent& event) override {
    outcome_.event = event;
    outcome_.done.Notify();
  }

 private:
  WindowOutcome& outcome_;
};

absl::Status ScoreWindow(Engine& engine, absl::Span<const int32_t> tokens,
                         const PerplexityWindow& window, const PerplexityOptions& options,
                         PerplexityResult& result) {
  EngineRequest request;
  request.prompt.assign(tokens.begin() + window.begin, tokens.begin() + window.end);
  if (options.first_token.has_value()) {
    request.prompt.insert(request.prompt.begin(), *options.first_token);
  }
  request.max_new_tokens = 0;
  request.prompt_logprobs = 0;
  request.prompt_logprobs_from =
      static_cast<int32_t>(static_cast<int64_t>(request.prompt.size()) - window.n_scored);
  request.attention = options.attention;
  WindowOutcome outcome;
  LK_RETURN_IF_ERROR(
      engine.Submit(std::move(request), std::make_unique<WindowSink>(outcome)).status());
  outcome.done.WaitForNotification();
  LK_RETURN_IF_ERROR(outcome.event.status);
  ++result.n_windows;
  result.n_scored += outcome.n_scored;
  result.negative_logprob += outcome.negative_logprob;
  result.seconds += static_cast<double>(outcome.event.timings.prefill_us) * 1e-6;
  result.cache_bytes = outcome.event.attention.cache_bytes;
  result.standard_bytes = outcome.event.attention.standard_cache_bytes;
  result.rank = outcome.event.attention.rank;
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
