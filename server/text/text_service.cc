#include "server/text/text_service.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/request/call_id.h"
#include "server/request/limits.h"
#include "server/text/text_sink.h"

namespace lowkey {
namespace {

// The model continues a prompt, so no prompt ends with the end-of-sequence token.
const EncodeOptions kPromptEncoding = {.add_bos = {}, .add_eos = false, .parse_special = false};

// 32 bits are enough to tell runs apart and short enough to type back.
uint32_t DrawSeed() { return std::random_device{}(); }

absl::Status CheckAtMost(const char* field, size_t n, size_t max, const char* unit) {
  if (n <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", n, " ", unit, ", expected at most ", max));
}

absl::Status CheckStopTexts(const std::vector<std::string>& stop_texts) {
  LK_RETURN_IF_ERROR(CheckAtMost("stop", stop_texts.size(), kMaxStopTexts, "texts"));
  for (size_t i = 0; i < stop_texts.size(); ++i) {
    LK_RETURN_IF_ERROR(CheckRange(absl::StrCat("stop[", i, "] bytes"),
                                  static_cast<int64_t>(stop_texts[i].size()), 1,
                                  int64_t{kMaxStopTextBytes}));
  }
  return absl::OkStatus();
}

}  // namespace

TextService::TextService(Engine& engine, const Tokenizer& tokenizer, Options options)
    : engine_(engine),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      live_requests_(std::make_shared<LiveRequests>()),
      structured_output_(tokenizer, engine.config().vocab_size, EndTokens()) {}

bool TextService::IsModelName(const std::string& name) const {
  const std::vector<std::string>& aliases = options_.model_aliases;
  return name == options_.model_name ||
         std::find(aliases.begin(), aliases.end(), name) != aliases.end();
}

absl::Status TextService::CheckModel(const std::string& name) const {
  if (name.empty() || IsModelName(name)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("model: \"", name, "\" is not served, expected \"", options_.model_name, "\""));
}

absl::Status TextService::CheckTokens(const std::string& field, const TokenList& tokens) const {
  const int32_t vocab_size = engine_.config().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return CheckRange(absl::StrCat(field, "[", i, "]"), tokens[i], 0, vocab_size - 1);
  }
  return absl::OkStatus();
}

Interrupt TextService::InterruptOf(absl::Time deadline, IsCancelled is_cancelled) const {
  return Interrupt([this, deadline, is_cancelled = std::move(is_cancelled)]() -> absl::Status {
    if (is_stopped_) return absl::UnavailableError("the server is stopping");
    if (is_cancelled != nullptr && is_cancelled()) {
      return absl::CancelledError("cancelled before the text was tokenized");
    }
    if (SteadyNow() < deadline) return absl::OkStatus();
    return absl::DeadlineExceededError("the deadline passed before the text was tokenized");
  });
}

size_t TextService::MaxTextBytes() const {
  const std::optional<size_t> per_id = tokenizer_.max_bytes_per_id();
  if (!per_id.has_value()) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(engine_.limits().context_tokens) * *per_id;
}

absl::Status TextService::CheckTextBytes(const std::string& field, size_t n_bytes) const {
  const size_t max_bytes = MaxTextBytes();
  if (n_bytes <= max_bytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      field, ": ", n_bytes, " bytes, expected at most ", max_bytes,
      ", as no longer text fits into the context of ", engine_.limits().context_tokens, " tokens"));
}

absl::StatusOr<TokenList> TextService::TokensOf(const std::string& field, const Input& input,
                                                Interrupt& interrupt) const {
  TokenList tokens;
  if (const auto* text = std::get_if<std::string>(&input)) {
    if (text->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": empty, expected 1 byte or more"));
    }
    LK_RETURN_IF_ERROR(CheckTextBytes(field, text->size()));
    EncodeOptions options = kPromptEncoding;
    options.interrupt = &interrupt;
    LK_ASSIGN_OR_RETURN(tokens, Prefixed(field, tokenizer_.Encode(*text, options)));
  } else {
    tokens = std::get<TokenList>(input);
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": no token, expected 1 or more"));
  }
  LK_RETURN_IF_ERROR(CheckTokens(field, tokens));
  return tokens;
}

absl::StatusOr<TokenList> TextService::TokensOf(const std::string& field, const Input& input,
                                                absl::Time deadline,
                                                IsCancelled is_cancelled) const {
  Interrupt interrupt = InterruptOf(deadline, std::move(is_cancelled));
  return TokensOf(field, input, interrupt);
}

absl::StatusOr<ChatPrompt> TextService::TokenizeChat(const Conversation& conversation,
                                                     const PromptLimits& limits) const {
  LK_ASSIGN_OR_RETURN(ChatPrompt prompt,
                      MakeChatPrompt(conversation, options_.chat_templates, tokenizer_, limits));
  LK_RETURN_IF_ERROR(CheckTokens("chat", prompt.tokens));
  if (prompt.tokens.empty()) {
    return absl::InvalidArgumentError("chat: the template wrote nothing, expected 1 token or more");
  }
  return prompt;
}

absl::StatusOr<TokenList> TextService::MakePrompt(const GenerationRequest& request) const {
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    return TokensOf("text", *text, interrupt);
  }
  if (const auto* tokens = std::get_if<TokenList>(&request.input)) {
    return TokensOf("token_ids", *tokens, interrupt);
  }
  LK_ASSIGN_OR_RETURN(ChatPrompt prompt,
                      TokenizeChat(std::get<Conversation>(request.input),
                                   {.max_bytes = MaxTextBytes(), .interrupt = &interrupt}));
  return std::move(prompt.tokens);
}

TokenList TextService::EndTokens() const {
  TokenList tokens = engine_.config().eos_tokens;
  // The tokenizer's files may name an end of turn that the model's files do not.
  for (int32_t token : tokenizer_.eos_ids()) {
    const bool is_new = std::find(tokens.begin(), tokens.end(), token) == tokens.end();
    if (is_new && token < engine_.config().vocab_size) tokens.push_back(token);
  }
  return tokens;
}

absl::StatusOr<std::shared_ptr<const TokenConstraintFactory>> TextService::MakeConstraint(
    const GenerationRequest& request) const {
  if (!request.response_format.has_value()) return nullptr;
  if (request.ignore_eos) {
    return absl::InvalidArgumentError(
        "ignore_eos: true beside a form of the answer, expected false: the text ends where its "
        "form "
        "does");
  }
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  return structured_output_.Compile(*request.response_format, request.tenant.name, interrupt);
}

absl::Status TextService::CheckBounds(const GenerationRequest& request) const {
  LK_RETURN_IF_ERROR(CheckModel(request.model));
  LK_RETURN_IF_ERROR(
      CheckAtMost("request_id", request.request_id.size(), kMaxRequestIdBytes, "bytes"));
  LK_RETURN_IF_ERROR(
      CheckRange("priority", request.priority.value_or(0), -kMaxPriority, kMaxPriority));
  LK_RETURN_IF_ERROR(
      CheckAtMost("prefix_marks", request.prefix_marks.size(), kMaxPrefixMarks, "lengths"));
  LK_RETURN_IF_ERROR(CheckStopTexts(request.stop_texts));
  LK_RETURN_IF_ERROR(
      CheckAtMost("stop_token_ids", request.stop_tokens.size(), kMaxStopTokens, "ids"));
  LK_RETURN_IF_ERROR(CheckTokens("stop_token_ids", request.stop_tokens));
  LK_RETURN_IF_ERROR(CheckRange("logprobs", request.logprobs.value_or(0), 0, kMaxLogprobs));
  LK_RETURN_IF_ERROR(
      CheckRange("prompt_logprobs", request.prompt_logprobs.value_or(0), 0, kMaxLogprobs));
  LK_RETURN_IF_ERROR(CheckRange("n", request.n.value_or(1), 1, kMaxChoices));
  const int32_t min_new_tokens = request.prompt_logprobs.has_value() ? 0 : 1;
  return CheckRange("max_new_tokens", request.max_new_tokens.value_or(1), min_new_tokens,
                    std::numeric_limits<int32_t>::max());
}

absl::Status TextService::CheckFields(const GenerationRequest& request) const {
  LK_RETURN_IF_ERROR(CheckBounds(request));
  LK_RETURN_IF_ERROR(
      ResolveSampling(request.sampling, options_.defaults.sampling, engine_.config().vocab_size)
          .status());
  LK_RETURN_IF_ERROR(ResolveSelectable(request.attention, options_.defaults).status());
  LK_RETURN_IF_ERROR(ResolveDraft(request.draft, options_.defaults.draft).status());
  if (!request.response_format.has_value()) return absl::OkStatus();
  return StructuredOutput::CheckSize(*request.response_format);
}

absl::StatusOr<int32_t> TextService::NewTokens(std::optional<int32_t> asked, int32_t fallback,
                                               size_t n_prompt_tokens) const {
  const int64_t context = engine_.limits().context_tokens;
  const int64_t room = context - static_cast<int64_t>(n_prompt_tokens);
  const int64_t n = asked.value_or(
      static_cast<int32_t>(std::clamp<int64_t>(fallback, 1, std::max<int64_t>(room, 1))));
  if (n <= room) return static_cast<int32_t>(n);
  return absl::OutOfRangeError(absl::StrCat("prompt and max_new_tokens: ", n_prompt_tokens, " + ",
                                            n, ", expected at most the context of ", context));
}

absl::Status CheckPromptLogprobs(int64_t n_tokens, int32_t n_alternatives, int32_t n_times) {
  const int64_t n = n_tokens * (int64_t{n_alternatives} + 1) * n_times;
  if (n <= kMaxPromptLogprobs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("prompt_logprobs: ", n_tokens, " tokens with ", n_alternatives, " alternatives",
                   n_times > 1 ? absl::StrCat(" in each of ", n_times, " choices") : "", " are ", n,
                   " log-probabilities, expected at most ", kMaxPromptLogprobs));
}

absl::StatusOr<EngineRequest> TextService::ToEngineRequest(const GenerationRequest& request) const {
  const ModelConfig& config = engine_.config();
  EngineRequest result;
  LK_ASSIGN_OR_RETURN(result.sampling, ResolveSampling(request.sampling, options_.defaults.sampling,
                                                       config.vocab_size));
  if (!request.sampling.seed.has_value()) result.sampling.seed = DrawSeed();
  result.sampling.logprobs = request.logprobs;
  LK_ASSIGN_OR_RETURN(const ResolvedAttention attention,
                      ResolveSelectable(request.attention, options_.defaults));
  result.attention = attention.options;
  result.selection = attention.selection;
  LK_ASSIGN_OR_RETURN(result.constraint, MakeConstraint(request));
  LK_ASSIGN_OR_RETURN(result.prompt, MakePrompt(request));
  const int32_t fallback = request.default_new_tokens.value_or(options_.defaults.max_new_tokens);
  LK_ASSIGN_OR_RETURN(result.max_new_tokens,
                      NewTokens(request.max_new_tokens, fallback, result.prompt.size()));
  result.n = request.n.value_or(1);
  if (request.prompt_logprobs.has_value()) {
    LK_RETURN_IF_ERROR(CheckPromptLogprobs(static_cast<int64_t>(result.prompt.size()),
                                           *request.prompt_logprobs, /*n_times=*/1));
  }
  result.prompt_logprobs = request.prompt_logprobs;
  result.stop_tokens = request.stop_tokens;
  if (!request.ignore_eos) {
    const TokenList ends = EndTokens();
    result.stop_tokens.insert(result.stop_tokens.end(), ends.begin(), ends.end());
  }
  result.deadline = request.deadline;
  result.tenant = request.tenant.name;
  result.tenant_weight = request.tenant.weight;
  result.priority = request.priority.value_or(0);
  result.prefix_marks = request.prefix_marks;
  LK_ASSIGN_OR_RETURN(result.draft, ResolveDraft(request.draft, options_.defaults.draft));
  return result;
}

absl::StatusOr<std::unique_ptr<LiveRequests::Claim>> TextService::TakeId(const Tenant& tenant,
                                                                         std::string id,
                                                                         bool is_begun) const {
  if (id.empty()) id = absl::StrCat("req-", GenerationId({}));
  return live_requests_->Take(tenant, id, is_begun);
}

absl::StatusOr<RequestId> TextService::Generate(const GenerationRequest& request,
                                                std::unique_ptr<GenerationListener> listener) {
  LK_RETURN_IF_ERROR(CheckBounds(request));
  // The id comes before the prompt is tokenized: a call over its quota costs next to nothing.
  LK_ASSIGN_OR_RETURN(std::unique_ptr<LiveRequests::Claim> claim,
                      TakeId(request.tenant, request.request_id, request.is_begun));
  LK_ASSIGN_OR_RETURN(EngineRequest engine_request, ToEngineRequest(request));
  TextSink::Options options;
  options.model = options_.model_name;
  options.n_choices = engine_request.n;
  options.stop_texts = request.stop_texts;
  options.shown_pieces = request.shown_pieces;
  if (!request.ignore_eos) {
    // Some files call the end of a turn an ordinary piece.
    for (const int32_t token : EndTokens()) {
      if (!tokenizer_.IsControl(token)) options.silent_tokens.push_back(token);
    }
  }
  options.is_mechanism_requested = request.attention.mechanism.has_value();
  options.is_conversation = std::holds_alternative<Conversation>(request.input);
  options.max_new_tokens = engine_request.max_new_tokens;
  options.metrics = options_.metrics;
  auto sink = std::make_unique<TextSink>(tokenizer_, std::move(options), std::move(claim),
                                         std::move(listener));
  const auto n_prompt_tokens = static_cast<int64_t>(engine_request.prompt.size());
  live_requests_->Charge(request.tenant, n_prompt_tokens);
  absl::StatusOr<RequestId> id = engine_.Submit(std::move(engine_request), std::move(sink));
  if (!id.ok()) live_requests_->Charge(request.tenant, -n_prompt_tokens);
  return id;
}

}  // namespace lowkey
