#include "tools/eval/scored_text.h"

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

struct Outcome {
  ScoredText text;
  absl::Notification done;
};

class OutcomeSink : public Sink {
 public:
  explicit OutcomeSink(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    outcome_->text.logprobs = std::move(logprobs);
  }
  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kStop; }
  void OnDone(const FinalEvent& event) override {
    outcome_->text.event = event;
    outcome_->done.Notify();
  }

 private:
  // Shared, as texts that were handed over before one was refused still end.
  const std::shared_ptr<Outcome> outcome_;
};

}  // namespace

absl::StatusOr<std::vector<ScoredText>> ScoreTexts(Engine& engine, std::vector<TextToScore> texts,
                                                   int n_top, const AttentionOptions& attention) {
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (TextToScore& text : texts) {
    EngineRequest request;
    request.prompt = std::move(text.tokens);
    request.max_new_tokens = 0;
    request.prompt_logprobs = n_top;
    request.prompt_logprobs_from =
        static_cast<int32_t>(static_cast<int64_t>(request.prompt.size()) - text.n_scored);
    request.attention = attention;
    outcomes.push_back(std::make_shared<Outcome>());
    LK_RETURN_IF_ERROR(
        engine.Submit(std::move(request), std::make_unique<OutcomeSink>(outcomes.back())).status());
  }
  std::vector<ScoredText> scored;
  for (const std::shared_ptr<Outcome>& outcome : outcomes) {
    outcome->done.WaitForNotification();
    LK_RETURN_IF_ERROR(outcome->text.event.status);
    scored.push_back(std::move(outcome->text));
  }
  return scored;
}

void EvalCost::Add(const ScoredText& text) {
  const AttentionReport& attention = text.event.attention;
  seconds += static_cast<double>(text.event.timings.prefill_us) * 1e-6;
  n_tokens += text.event.n_prompt_tokens;
  if (attention.standard_cache_bytes >= standard_bytes) {
    standard_bytes = attention.standard_cache_bytes;
    cache_bytes = attention.cache_bytes;
  }
  rank = attention.rank;
}

}  // namespace lowkey
