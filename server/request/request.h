#ifndef LOWKEY_SERVER_REQUEST_REQUEST_H_
#define LOWKEY_SERVER_REQUEST_REQUEST_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/config/attention_option_table.h"
#include "engine/runtime/engine.h"
#include "engine/sampler/sampler.h"
#include "server/request/response_format.h"
#include "server/request/tenant.h"
#include "tokenizer/chat/chat_template.h"

namespace lowkey {

// Requests, whatever protocol or command they came through. An absent field takes the server's
// default. TextService checks the values.

struct SamplingChoice {
  std::optional<float> temperature = {}, top_p = {}, min_p = {};
  std::optional<float> repetition_penalty = {}, presence_penalty = {}, frequency_penalty = {};
  std::optional<int32_t> top_k = {};
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::optional<uint64_t> seed = {};
};

struct AttentionChoice {
  std::optional<std::string> mechanism = {};
  OptionValues options = {};
  // Rules of mechanism "auto".
  std::optional<std::string> objective = {};
  std::vector<std::string> allowed = {};
  std::optional<bool> allow_approximate = {};
  std::optional<double> max_perplexity_ratio = {};
};

using TokenList = std::vector<int32_t>;
using Input = std::variant<std::string, TokenList>;
using PromptInput = std::variant<std::string, TokenList, Conversation>;

// Returns whether nobody waits for the answer any more. Is asked now and then while a request's
// text is tokenized, in the thread that submits the request. Unset: somebody waits.
using IsCancelled = std::function<bool()>;

struct GenerationRequest {
  std::string model;       // empty: the only one
  std::string request_id;  // empty: the server makes one
  PromptInput input;
  SamplingChoice sampling;
  AttentionChoice attention;
  std::optional<int32_t> max_new_tokens;
  // Stands for the server's default where max_new_tokens is unset; is cut to the context likewise.
  std::optional<int32_t> default_new_tokens = {};
  std::vector<std::string> stop_texts;
  std::vector<int32_t> stop_tokens;
  bool ignore_eos = false;
  std::vector<std::string> shown_pieces = {};  // control pieces whose text is part of the output
  std::optional<int32_t> logprobs, prompt_logprobs;
  std::optional<int32_t> n;
  std::optional<int32_t> priority;
  std::vector<int32_t> prefix_marks;
  std::optional<std::string> draft;
  std::optional<ResponseFormat> response_format;
  absl::Time deadline = absl::InfiniteFuture();
  Tenant tenant;  // from the credentials, never from the message
  // Says whether the request is a further prompt of a call, which the tenant's tokens_per_minute
  // let begin.
  bool is_begun = false;
  IsCancelled is_cancelled = {};
};

struct ScoreRequest {
  std::string model = {};
  Input context = {};
  std::vector<Input> continuations = {};  // the same kind as context
  AttentionChoice attention = {};
  absl::Time deadline = absl::InfiniteFuture();
  Tenant tenant = {};
  IsCancelled is_cancelled = {};
};

struct TokenizeRequest {
  std::string model = {};
  std::variant<std::string, Conversation> input = {};  // a text may be empty
  bool add_bos = true;  // where the model has one; a conversation's template writes its own
  // Says whether the tokens count against the tenant's quota: not where they are then generated
  // from.
  bool is_charged = true;
  absl::Time deadline = absl::InfiniteFuture();
  Tenant tenant = {};
  IsCancelled is_cancelled = {};
};

struct TokenizeResult {
  TokenList tokens = {};
  std::string rendered_text = {};  // of a conversation: the text that the template wrote
};

struct DetokenizeRequest {
  std::string model = {};
  TokenList tokens = {};
  absl::Time deadline = absl::InfiniteFuture();
  Tenant tenant = {};
  IsCancelled is_cancelled = {};
};

// The values of unset fields. GetModel shows them to clients.
struct Defaults {
  SamplingOptions sampling;
  AttentionOptions attention;
  std::optional<SelectionRules> selection;  // set: the mechanism is chosen for each request
  int32_t max_new_tokens = 128;
  DraftMode draft = DraftMode::kOff;
};

// Returns INVALID_ARGUMENT naming the field and the byte, unless `text` is UTF-8. Protobuf would
// refuse such text without naming the field.
absl::Status CheckUtf8(const std::string& field, const std::string& text);

// Returns `choice` over `defaults`. INVALID_ARGUMENT naming "attention.<field>", value and range;
// also for an option of another mechanism, which would otherwise be ignored silently.
absl::StatusOr<AttentionOptions> ResolveAttention(const AttentionChoice& choice,
                                                  const AttentionOptions& defaults);

// The same where the mechanism may be "auto": then `selection` holds the rules, and `options` the
// candidates' options. A rule beside a named mechanism is INVALID_ARGUMENT too.
struct ResolvedAttention {
  AttentionOptions options;
  std::optional<SelectionRules> selection;
};
absl::StatusOr<ResolvedAttention> ResolveSelectable(const AttentionChoice& choice,
                                                    const Defaults& defaults);

// Returns `choice` over `fallback`. INVALID_ARGUMENT naming "draft", the value and the names.
absl::StatusOr<DraftMode> ResolveDraft(const std::optional<std::string>& choice,
                                       DraftMode fallback);

// Returns `choice` over `defaults`; the caller draws an absent seed. INVALID_ARGUMENT naming
// "sampling.<field>", value and range.
absl::StatusOr<SamplingOptions> ResolveSampling(const SamplingChoice& choice,
                                                const SamplingOptions& defaults,
                                                int32_t vocab_size);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_REQUEST_H_
