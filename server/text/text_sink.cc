#include "server/text/text_sink.h"

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "server/metrics/metrics.h"

namespace lowkey {

TextSink::TextSink(const Tokenizer& tokenizer, Options options,
                   std::unique_ptr<LiveRequests::Claim> claim,
                   std::unique_ptr<GenerationListener> listener)
    : options_(std::move(options)), claim_(std::move(claim)), listener_(std::move(listener)) {
  choices_.reserve(static_cast<size_t>(options_.n_choices));
  for (int32_t i = 0; i < options_.n_choices; ++i) {
    const DecodeOptions decoding = {.keep_leading_space = true,
                                    .shown_pieces = options_.shown_pieces};
    choices_.push_back({StreamDecoder(tokenizer, decoding), StopMatcher(options_.stop_texts),
                        std::nullopt, std::nullopt});
  }
}

void TextSink::OnPromptLogprobs(std::vector<PromptLogprob> logprobs) {
  listener_->OnPromptLogprobs(std::move(logprobs));
}

void TextSink::ObserveToken(Choice& choice) {
  const absl::Time now = SteadyNow();
  if (!has_token_) options_.metrics->ObserveFirstToken(now - start_);
  if (choice.last_token.has_value()) options_.metrics->ObserveNextToken(now - *choice.last_token);
  choice.last_token = now;
  has_token_ = true;
}

SinkAnswer TextSink::OnToken(int32_t choice, const SampledToken& token) {
  Choice& state = choices_[static_cast<size_t>(choice)];
  if (options_.metrics != nullptr) ObserveToken(state);
  const std::vector<int32_t>& silent = options_.silent_tokens;
  std::string text;
  if (std::find(silent.begin(), silent.end(), token.token) == silent.end()) {
    // A model's vocabulary may be padded past the tokenizer's: such a token has no text.
    text = state.decoder.Append(token.token).value_or(std::string());
  }
  StopMatcher::Result found = state.matcher.Append(text);
  state.match = found.match;
  const SinkAnswer answer = listener_->OnDelta({choice, std::move(found.text), token});
  return found.match.has_value() ? SinkAnswer::kStop : answer;
}

void TextSink::FlushHeldText() {
  for (int32_t i = 0; i < options_.n_choices; ++i) {
    Choice& state = choices_[static_cast<size_t>(i)];
    if (state.match.has_value()) continue;
    // The end of an unfinished UTF-8 sequence can still complete a stop text.
    StopMatcher::Result found = state.matcher.Append(state.decoder.Finish());
    state.match = found.match;
    if (!found.match.has_value()) found.text += state.matcher.Flush();
    if (!found.text.empty()) listener_->OnDelta({i, std::move(found.text), std::nullopt});
  }
}

GenerationResult TextSink::ResultOf(const FinalEvent& event) const {
  GenerationResult result;
  result.request_id = claim_->id();
  result.model = options_.model;
  result.is_conversation = options_.is_conversation;
  result.max_new_tokens = options_.max_new_tokens;
  result.submitted = DateOf(start_);
  result.engine = event;
  std::string& reason = result.engine.attention.reason;
  if (reason.empty()) reason = options_.is_mechanism_requested ? "requested" : "default";
  for (size_t i = 0; i < choices_.size(); ++i) {
    ChoiceFinish finish;
    if (i < event.finish_reasons.size()) finish.reason = event.finish_reasons[i];
    if (i < event.n_generated.size()) finish.n_generated = event.n_generated[i];
    // Without a stop text the listener has stopped the request: nobody reads any more.
    if (finish.reason == FinishReason::kStoppedBySink) finish.reason = FinishReason::kCancelled;
    if (choices_[i].match.has_value()) {
      finish.reason = FinishReason::kStoppedBySink;
      finish.stop_text = choices_[i].matcher.stop_text(*choices_[i].match);
    }
    result.choices.push_back(std::move(finish));
  }
  return result;
}

// The listener hears of the end whatever happens, as its client waits for it.
void TextSink::OnDone(const FinalEvent& event) {
  const bool is_whole = RunContained([this] { FlushHeldText(); });
  GenerationResult result;
  RunInTheEnd([&] { result = ResultOf(event); });
  if (!is_whole && result.engine.status.ok()) result.engine.status = OutOfMemory();
  // The metrics come before OnDone: a client that saw the end finds it in the metrics.
  if (options_.metrics != nullptr) {
    RunContained([&] { options_.metrics->ObserveEnd(result, SteadyNow() - start_); });
  }
  int64_t n_generated = 0;
  for (const ChoiceFinish& finish : result.choices) n_generated += finish.n_generated;
  claim_->Charge(n_generated);
  claim_->Release();
  listener_->OnDone(result);
}

}  // namespace lowkey
