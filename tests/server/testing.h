#ifndef LOWKEY_TESTS_SERVER_TESTING_H_
#define LOWKEY_TESTS_SERVER_TESTING_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/request/generation.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The demo model's tokenizer: byte fallback, bos 1, eos 2.
const Tokenizer& TestTokenizer();

// Ids that decode, after a prompt, to exactly `text`: its bytes' own pieces.
std::vector<int32_t> BytePieces(const std::string& text);

// The results that a listener heard; outlives the listener.
struct Heard {
  std::vector<ChoiceDelta> deltas;
  std::vector<PromptLogprob> prompt_logprobs;
  std::vector<GenerationResult> results;
  SinkAnswer answer = SinkAnswer::kContinue;

  std::string Text(int32_t choice = 0) const {
    std::string text;
    for (const ChoiceDelta& delta : deltas) {
      if (delta.choice == choice) text += delta.text;
    }
    return text;
  }
};

class RecordingListener : public GenerationListener {
 public:
  explicit RecordingListener(std::shared_ptr<Heard> heard) : heard_(std::move(heard)) {}
  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    heard_->prompt_logprobs = std::move(logprobs);
  }
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    heard_->deltas.push_back(std::move(delta));
    return heard_->answer;
  }
  void OnDone(const GenerationResult& result) override { heard_->results.push_back(result); }

 private:
  const std::shared_ptr<Heard> heard_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_TESTING_H_
