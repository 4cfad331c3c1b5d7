#include "tools/eval/scored_text.h"

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "engine/base/status_macros.h"
#include "tools/eval/given_tokens.h"

namespace lowkey {
namespace {

struct Outcome {
  ScoredText text;
  absl::Notification done;
};

class OutcomeSink : public Sink {
 public:
  OutcomeSink(std::shared_ptr<Outcome> outcome, size_t n_prompt_tokens)
      : outcome_(std::move(outcome)), n_prompt_tokens_(n_prompt_tokens) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    outcome_->text.logprobs = std::move(logprobs);
  }
  SinkAnswer OnToken(int32_t, const SampledToken& token) override {
    const auto position = static_cast<int32_t>(n_prompt_tokens_ + outcome_->text.logprobs.size());
    outcome_->text.logprobs.push_back(
        {position, {token.token, *token.logprob}, token.top_logprobs});
    return SinkAnswer::kContinue;
  }
  void OnDone(const FinalEvent& event) override {
    outcome_->text.event = event;
    outcome_->done.Notify();
  }

 private:
  // Shared, as texts that were handed over before one was refused still end.
  const std::shared_ptr<Outcome> outcome_;
  const size_t n_prompt_tokens_;
};

EngineRequest MakeRequest(TextToScore text, int n_top, const Reading& reading, int32_t vocab_size) {
  EngineRequest request;
  request.attention = reading.attention;
  if (text.n_shared > 0) request.prefix_marks = {static_cast<int32_t>(text.n_shared)};
  const auto first_scored = text.tokens.end() - text.n_scored;
  if (reading.as_generated) {
    request.constraint = GiveTokens({first_scored, text.tokens.end()}, vocab_size);
    request.max_new_tokens = static_cast<int32_t>(text.n_scored);
    request.sampling.logprobs = n_top;
    text.tokens.erase(first_scored, text.tokens.end());
  } else {
    request.max_new_tokens = 0;
    request.prompt_logprobs = n_top;
    request.prompt_logprobs_from = static_cast<int32_t>(first_scored - text.tokens.begin());
  }
  request.prompt = std::move(text.tokens);
  return request;
}

}  // namespace

absl::StatusOr<std::vector<ScoredText>> ScoreTexts(Engine& engine, std::vector<TextToScore> texts,
                                                   int n_top, const Reading& reading) {
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (TextToScore& text : texts) {
    EngineRequest request =
        MakeRequest(std::move(text), n_top, reading, engine.config().vocab_size);
    outcomes.push_back(std::make_shared<Outcome>());
    auto sink = std::make_unique<OutcomeSink>(outcomes.back(), request.prompt.size());
    LK_RETURN_IF_ERROR(engine.Submit(std::move(request), std::move(sink)).status());
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
  n_tokens += text.event.n_prompt_tokens - text.event.n_cached_tokens;
  if (attention.standard_cache_bytes >= standard_bytes) {
    standard_bytes = attention.standard_cache_bytes;
    cache_bytes = attention.cache_bytes;
  }
  rank = attention.rank;
}

}  // namespace lowkey
