#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_COLLECTING_SINK_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_COLLECTING_SINK_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// The results of a request, shared by the test and the sink.
struct Collected {
  std::map<int32_t, std::vector<int32_t>> tokens;  // by choice
  std::map<int32_t, std::vector<float>> logprobs;
  std::vector<PromptLogprob> prompt_logprobs;
  std::optional<FinalEvent> final_event;
  int n_done_calls = 0;
  absl::Notification done;
  // Asked at every token, from the engine's thread.
  std::function<SinkAnswer(int32_t choice, int32_t token)> on_token;

  FinalEvent Wait() {
    done.WaitForNotification();
    return *final_event;
  }
};

class CollectingSink : public Sink {
 public:
  explicit CollectingSink(std::shared_ptr<Collected> to) : to_(std::move(to)) {}
  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    to_->prompt_logprobs = std::move(logprobs);
  }
  SinkAnswer OnToken(int32_t choice, const SampledToken& token) override {
    to_->tokens[choice].push_back(token.token);
    if (token.logprob.has_value()) to_->logprobs[choice].push_back(*token.logprob);
    return to_->on_token ? to_->on_token(choice, token.token) : SinkAnswer::kContinue;
  }
  void OnDone(const FinalEvent& event) override {
    to_->final_event = event;
    ++to_->n_done_calls;
    if (to_->n_done_calls == 1) to_->done.Notify();
  }

 private:
  std::shared_ptr<Collected> to_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_COLLECTING_SINK_H_
