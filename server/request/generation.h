#ifndef LOWKEY_SERVER_REQUEST_GENERATION_H_
#define LOWKEY_SERVER_REQUEST_GENERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// New output of one choice: a token, or text that was held back and is now safe, or both.
struct ChoiceDelta {
  int32_t choice = 0;
  std::string text;  // whole UTF-8 sequences; may be empty
  std::optional<SampledToken> token;
};

struct ChoiceFinish {
  FinishReason reason = FinishReason::kError;
  std::optional<std::string> stop_text;  // the stop text that matched, with kStoppedBySink
  int32_t n_generated = 0;
};

struct GenerationResult {
  std::string request_id;
  std::string model;
  bool is_conversation = false;       // the input was a conversation
  int32_t max_new_tokens = 0;         // asked for, or the default
  absl::Time submitted;               // to the engine; a date
  std::vector<ChoiceFinish> choices;  // one per choice
  // The engine's report; attention.reason says whether the request or the default chose.
  FinalEvent engine;
};

// Receives one request's results: OnPromptLogprobs at most once before any delta, deltas, then
// exactly one OnDone, after which the listener is destroyed. Calls come from the engine's thread,
// one at a time; they must neither block nor call the service.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) { (void)logprobs; }
  // kPause: the delta was taken; the engine computes nothing more until TextService::Resume.
  // kCancel ends the request: nobody reads any more.
  virtual SinkAnswer OnDelta(ChoiceDelta delta) = 0;
  virtual void OnDone(const GenerationResult& result) = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_GENERATION_H_
