#ifndef LOWKEY_SERVER_TEXT_TEXT_SERVICE_H_
#define LOWKEY_SERVER_TEXT_TEXT_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/engine.h"
#include "server/request/generation.h"
#include "server/request/request.h"
#include "server/text/chat.h"
#include "server/text/live_requests.h"
#include "server/text/structured_output.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

class Metrics;

struct ContinuationScore {
  double logprob = 0;                // natural logarithm, over the scored tokens
  std::vector<TokenLogprob> tokens;  // the scored tokens
  bool is_greedy = true;             // each token was the most likely one
};

struct ScoreResult {
  std::vector<ContinuationScore> scores;  // in the order of the request
  size_t best = 0;
  int64_t n_prompt_tokens = 0, n_cached_tokens = 0;
};

// Is called once, on the engine's thread; must neither block nor call the service.
using ScoreCallback = std::function<void(absl::StatusOr<ScoreResult>)>;

// INVALID_ARGUMENT where an answer would have more log-probabilities of prompts than
// kMaxPromptLogprobs: `n_times` times `n_tokens` tokens with `n_alternatives` each.
absl::Status CheckPromptLogprobs(int64_t n_tokens, int32_t n_alternatives, int32_t n_times);

// Serves texts over an engine of token ids: checks requests, applies the defaults, tokenizes. Every
// protocol adapter calls this class. Thread-safe.
class TextService {
 public:
  struct Options {
    std::string model_name;
    Defaults defaults;
    ChatTemplates chat_templates = {};
    Metrics* metrics = nullptr;  // must outlive the service and its generations; null: none
    std::vector<std::string> model_aliases = {};  // further names of the model
  };

  // engine and tokenizer must outlive the service. Options must be valid.
  TextService(Engine& engine, const Tokenizer& tokenizer, Options options);

  // Starts a generation whose results go to the listener. On an error the listener is destroyed
  // without a call:
  //   INVALID_ARGUMENT  a field out of range (names it, its value, its range)
  //   NOT_FOUND         unknown model
  //   UNIMPLEMENTED     a field that is not supported yet
  //   OUT_OF_RANGE      prompt and max_new_tokens pass the context
  //   FAILED_PRECONDITION  a conversation, but no usable chat template; a response format, but no
  //                        end-of-sequence token
  //   ALREADY_EXISTS    request_id is running, for the same tenant
  //   RESOURCE_EXHAUSTED   the tenant's quota is used up; RetryAfterOf says for how long
  //   and those of Engine::Submit
  absl::StatusOr<RequestId> Generate(const GenerationRequest& request,
                                     std::unique_ptr<GenerationListener> listener);

  // Returns the first of Generate's errors that follows from the request's fields alone, without
  // its prompt and the compilation of its response format. Costs little.
  absl::Status CheckFields(const GenerationRequest& request) const;

  // Starts one scoring per continuation; the callback gets all results or the first error. Returns
  // the same errors as Generate, without a callback.
  absl::StatusOr<std::vector<RequestId>> Score(const ScoreRequest& request, ScoreCallback callback);

  // Returns the ids of a text, or of a conversation as Generate would feed it to the model; the
  // pieces are tokenizer().IdToPiece's. Blocks while it computes. Errors:
  //   INVALID_ARGUMENT    a text over kMaxTokenizeBytes or not UTF-8; those of MakeChatPrompt
  //   NOT_FOUND           unknown model
  //   OUT_OF_RANGE        a conversation over kMaxTokenizeBytes once rendered
  //   FAILED_PRECONDITION a conversation, but no usable chat template
  //   RESOURCE_EXHAUSTED  the tenant's quota is used up (RetryAfterOf says for how long), or ids
  //                       and pieces would take over kMaxTextAnswerBytes
  //   DEADLINE_EXCEEDED, CANCELLED, or UNAVAILABLE after StopTokenizing
  absl::StatusOr<TokenizeResult> Tokenize(const TokenizeRequest& request) const;

  // Returns the ids' text. Errors are those of Tokenize; INVALID_ARGUMENT for an id outside the
  // vocabulary or over kMaxDetokenizeIds of them.
  absl::StatusOr<std::string> Detokenize(const DetokenizeRequest& request) const;

  // Returns a conversation as its template writes it. Errors are those of Tokenize.
  absl::StatusOr<std::string> Render(const Conversation& conversation, const Tenant& tenant) const;

  // Return the tokens of a prompt, and the most that are generated behind so many: the asked
  // number, or the fallback cut to the context. Errors are those of Generate, and the first one's
  // begin with `field`.
  absl::StatusOr<TokenList> TokensOf(const std::string& field, const Input& input,
                                     absl::Time deadline, IsCancelled is_cancelled) const;
  absl::StatusOr<int32_t> NewTokens(std::optional<int32_t> asked, int32_t fallback,
                                    size_t n_prompt_tokens) const;

  // Ends texts that are being tokenized, for whichever call, and refuses later ones, with
  // UNAVAILABLE: a server that stops need not wait for them. Thread-safe.
  void StopTokenizing() { is_stopped_ = true; }

  // Ends a generation or scoring within a step. Ids that are unknown or finished are ignored.
  void Cancel(RequestId id) { engine_.Cancel(id); }

  // Resumes a request whose listener answered kPause (Engine::Resume).
  void Resume(RequestId id) { engine_.Resume(id); }

  // NOT_FOUND unless `name` is empty or the served model's.
  absl::Status CheckModel(const std::string& name) const;
  bool IsModelName(const std::string& name) const;

  // INVALID_ARGUMENT naming the first id outside the vocabulary.
  absl::Status CheckTokens(const std::string& field, const TokenList& tokens) const;

  Engine& engine() { return engine_; }
  const Engine& engine() const { return engine_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Options& options() const { return options_; }

 private:
  struct ScorePrompts {
    std::vector<TokenList> prompts = {};  // context and continuation, one per continuation
    size_t boundary = 0;                  // the tokens of the condition, which all prompts share
  };

  // `request` has passed CheckBounds.
  absl::StatusOr<EngineRequest> ToEngineRequest(const GenerationRequest& request) const;
  // Claims the id; an empty one becomes an id that nobody has.
  absl::StatusOr<std::unique_ptr<LiveRequests::Claim>> TakeId(const Tenant& tenant, std::string id,
                                                              bool is_begun = false) const;
  // Returns what ends the work on a request's texts before it is done.
  Interrupt InterruptOf(absl::Time deadline, IsCancelled is_cancelled) const;
  // Returns the bytes of the longest text that may fit into the context, whatever it says.
  size_t MaxTextBytes() const;
  // OUT_OF_RANGE for a longer one.
  absl::Status CheckTextBytes(const std::string& field, size_t n_bytes) const;
  absl::StatusOr<TokenList> TokensOf(const std::string& field, const Input& input,
                                     Interrupt& interrupt) const;
  absl::StatusOr<ChatPrompt> TokenizeChat(const Conversation& conversation,
                                          const PromptLimits& limits) const;
  absl::StatusOr<TokenList> MakePrompt(const GenerationRequest& request) const;
  // Returns nullptr for a request without response format.
  absl::StatusOr<std::shared_ptr<const TokenConstraintFactory>> MakeConstraint(
      const GenerationRequest& request) const;
  // `request` has passed CheckContinuations.
  absl::StatusOr<ScorePrompts> MakeScorePrompts(const ScoreRequest& request) const;
  // Return the context with each continuation; `context` holds the context's own tokens.
  absl::StatusOr<std::vector<TokenList>> JoinedTexts(const ScoreRequest& request,
                                                     const TokenList& context,
                                                     Interrupt& interrupt) const;
  absl::StatusOr<std::vector<TokenList>> JoinedTokens(const ScoreRequest& request,
                                                      const TokenList& context) const;
  // Returns the tokens that end an answer unless ignore_eos is set.
  TokenList EndTokens() const;
  absl::Status CheckBounds(const GenerationRequest& request) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const Options options_;
  const std::shared_ptr<LiveRequests> live_requests_;
  mutable StructuredOutput structured_output_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_TEXT_SERVICE_H_
