#ifndef LOWKEY_SERVER_TEXT_TEXT_SINK_H_
#define LOWKEY_SERVER_TEXT_TEXT_SINK_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/base/clock.h"
#include "engine/runtime/engine.h"
#include "server/request/generation.h"
#include "server/text/live_requests.h"
#include "server/text/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

class Metrics;

// Turns one request's tokens into text: detokenizes them, then finds stop texts. Text never ends
// inside a UTF-8 sequence and never shows any part of a stop text that matched.
class TextSink : public Sink {
 public:
  struct Options {
    std::string model = {};
    int32_t n_choices = 1;
    std::vector<std::string> stop_texts = {};
    std::vector<std::string> shown_pieces = {};  // control pieces that are text all the same
    std::vector<int32_t> silent_tokens = {};     // end the text and are no part of it
    bool is_mechanism_requested = false;
    bool is_conversation = false;  // the prompt was a conversation
    int32_t max_new_tokens = 0;    // asked for, or the default
    Metrics* metrics = nullptr;    // must outlive the sink; null: none
  };

  // The tokenizer must outlive the sink. The claim is released before the listener's OnDone, so
  // that the caller may use the id again at once.
  TextSink(const Tokenizer& tokenizer, Options options, std::unique_ptr<LiveRequests::Claim> claim,
           std::unique_ptr<GenerationListener> listener);

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override;
  SinkAnswer OnToken(int32_t choice, const SampledToken& token) override;
  void OnDone(const FinalEvent& event) override;

 private:
  struct Choice {
    StreamDecoder decoder;
    StopMatcher matcher;
    std::optional<size_t> match;
    std::optional<absl::Time> last_token;
  };

  void ObserveToken(Choice& choice);
  void FlushHeldText();
  GenerationResult ResultOf(const FinalEvent& event) const;

  const Options options_;
  std::unique_ptr<LiveRequests::Claim> claim_;
  std::unique_ptr<GenerationListener> listener_;
  std::vector<Choice> choices_;
  const absl::Time start_ = SteadyNow();
  bool has_token_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_TEXT_SINK_H_
