#include "server/api/openai/completions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/api/openai/completion_answer.h"
#include "server/api/openai/error_names.h"
#include "server/api/openai/requests/request_reader.h"
#include "server/api/openai/requests/response_format.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int32_t kDefaultNewTokens = 16;  // as OpenAI's
constexpr size_t kMaxEchoBytes = size_t{4} << 20;

absl::StatusOr<TokenList> ReadIds(const TextService& service, const json& value,
                                  const std::string& name) {
  if (value.empty()) return ValueError(name, value, "1 token or more");
  TokenList ids;
  ids.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    LK_ASSIGN_OR_RETURN(ids.emplace_back(), ReadInt32(absl::StrCat(name, "[", i, "]"), value[i]));
  }
  LK_RETURN_IF_ERROR(service.CheckTokens(name, ids));
  return ids;
}

// A text, texts, ids, or lists of ids.
absl::StatusOr<std::vector<Input>> ReadPrompts(const TextService& service, Fields& fields) {
  constexpr char kExpected[] = "a text, an array of texts, of token ids or of such arrays";
  const json* value = fields.Take("prompt");
  if (value == nullptr) return fields.Error("prompt", kExpected);
  std::vector<Input> prompts;
  if (value->is_string()) {
    prompts.emplace_back(value->get<std::string>());
    return prompts;
  }
  if (!value->is_array() || value->empty()) return fields.Error("prompt", kExpected);
  if (value->front().is_number()) {
    LK_ASSIGN_OR_RETURN(prompts.emplace_back(), ReadIds(service, *value, "prompt"));
    return prompts;
  }
  if (value->size() > kMaxCallChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: ", value->size(), " prompts, expected at most ", kMaxCallChoices));
  }
  for (size_t i = 0; i < value->size(); ++i) {
    const std::string name = absl::StrCat("prompt[", i, "]");
    const json& entry = (*value)[i];
    if (entry.type() != value->front().type()) return ValueError(name, entry, "one kind of prompt");
    if (entry == "") return ValueError(name, entry, "1 byte or more");
    if (entry.is_string()) {
      prompts.emplace_back(entry.get<std::string>());
    } else if (entry.is_array()) {
      LK_ASSIGN_OR_RETURN(prompts.emplace_back(), ReadIds(service, entry, name));
    } else {
      return ValueError(name, entry, kExpected);
    }
  }
  return prompts;
}

// The fields that chats lack.
struct CompletionFields {
  std::vector<Input> prompts;
  PromptEcho echo;
  std::optional<int32_t> logprobs;
};

absl::Status ReadLogprobs(Fields& fields, CompletionFields& own, GenerationRequest& request) {
  LK_RETURN_IF_ERROR(fields.Read("logprobs", own.logprobs));
  LK_RETURN_IF_ERROR(fields.Read("echo", own.echo.echoes));
  LK_RETURN_IF_ERROR(fields.Read("prompt_logprobs", own.echo.prompt_logprobs));
  request.logprobs = own.logprobs;
  if (own.echo.echoes) request.prompt_logprobs = own.logprobs;
  if (!own.echo.prompt_logprobs.has_value()) return absl::OkStatus();
  if (request.prompt_logprobs.has_value() &&
      *request.prompt_logprobs != *own.echo.prompt_logprobs) {
    return absl::InvalidArgumentError(absl::StrCat("prompt_logprobs: ", *own.echo.prompt_logprobs,
                                                   ", expected ", *request.prompt_logprobs,
                                                   ", as logprobs beside echo, or none"));
  }
  request.prompt_logprobs = own.echo.prompt_logprobs;
  return absl::OkStatus();
}

absl::Status CheckChoices(const CompletionFields& own, const GenerationRequest& request,
                          const Tenant& tenant) {
  const int32_t n = request.n.value_or(1);
  LK_RETURN_IF_ERROR(CheckRange("n", n, 1, kMaxChoices));
  // More could never run together, and none of a call's prompts waits for the others.
  const auto n_prompts = static_cast<int64_t>(own.prompts.size());
  if (n_prompts > tenant.max_live_requests.value_or(n_prompts)) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: ", n_prompts, " prompts, expected at most the ",
                     *tenant.max_live_requests, " live requests of tenant ", tenant.name));
  }
  if (own.prompts.size() * static_cast<size_t>(n) <= kMaxCallChoices) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("prompt: ", own.prompts.size(), " prompts with n ",
                                                 n, ", expected at most ", kMaxCallChoices,
                                                 " choices in all"));
}

// Texts of ids may be far longer than the ids, and are repeated for each choice.
absl::StatusOr<std::string> TextOf(const TextService& service, const TokenList& ids,
                                   size_t& n_left_bytes) {
  LK_RETURN_IF_ERROR(service.CheckTokens("prompt", ids));
  absl::StatusOr<std::string> text = service.tokenizer().Decode(ids, {.max_bytes = n_left_bytes});
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("echo: the prompts' texts are over ",
                                                   kMaxEchoBytes, " bytes, expected at most that"));
  }
  n_left_bytes -= text->size();
  return text;
}

absl::Status TakeEcho(const TextService& service, CompletionFields& own) {
  size_t n_left_bytes = kMaxEchoBytes;
  for (const Input& prompt : own.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      own.echo.texts.push_back(*text);
      continue;
    }
    LK_ASSIGN_OR_RETURN(own.echo.texts.emplace_back(),
                        TextOf(service, std::get<TokenList>(prompt), n_left_bytes));
  }
  return absl::OkStatus();
}

// Turns texts into tokens where the answer names or counts them. An empty prompt is refused later.
absl::Status TakeTokens(const TextService& service, const RpcContext& context,
                        const CallState& call, CompletionFields& own, AnswerForm& form) {
  for (Input& prompt : own.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt); text != nullptr && !text->empty()) {
      LK_ASSIGN_OR_RETURN(prompt, PromptTokens(service, context, call, *text));
    }
    const auto* ids = std::get_if<TokenList>(&prompt);
    const bool has_any = ids != nullptr && !ids->empty();
    own.echo.first_tokens.push_back(has_any ? ids->front() : 0);
    if (has_any) form.n_prompt_tokens += static_cast<int64_t>(ids->size());
  }
  return absl::OkStatus();
}

// Turns several prompts into tokens, so that none begins beside one that leaves no room for its
// answer.
absl::Status TakeSeveral(const TextService& service, const RpcContext& context,
                         const CallState& call, const GenerationRequest& request,
                         CompletionFields& own) {
  for (size_t i = 0; i < own.prompts.size(); ++i) {
    const std::string name = absl::StrCat("prompt[", i, "]");
    LK_ASSIGN_OR_RETURN(TokenList tokens, service.TokensOf(name, own.prompts[i], context.deadline,
                                                           [&call] { return call.is_over(); }));
    const absl::Status fits =
        service.NewTokens(request.max_new_tokens, kDefaultNewTokens, tokens.size()).status();
    LK_RETURN_IF_ERROR(Prefixed(name, WithApiNames(fits)));
    own.prompts[i] = std::move(tokens);
  }
  return absl::OkStatus();
}

AnswerForm FormOf(const CommonRequest& common, const CompletionFields& own,
                  const std::string& fingerprint) {
  return {.id = absl::StrCat("cmpl-", common.request.request_id),
          .model = common.model,
          .fingerprint = fingerprint,
          .created = absl::ToUnixSeconds(DateNow()),
          .n_prompts = own.prompts.size(),
          .n = static_cast<size_t>(common.request.n.value_or(1)),
          .includes_usage = common.includes_usage,
          .includes_continuous_usage = common.includes_continuous_usage,
          .logprobs = own.logprobs};
}

}  // namespace

absl::StatusOr<Generations> ReadCompletions(const TextService& service,
                                            const OpenAiOptions& options,
                                            const std::string& fingerprint,
                                            const RpcContext& context, const CallState& call,
                                            const std::string& body) {
  LK_ASSIGN_OR_RETURN(const json object, ParseBody(body));
  Fields fields(object);
  CommonRequest common;
  LK_RETURN_IF_ERROR(ReadCommon(service, options, context.id, fields, common));
  GenerationRequest& request = common.request;
  CompletionFields own;
  LK_ASSIGN_OR_RETURN(own.prompts, ReadPrompts(service, fields));
  LK_RETURN_IF_ERROR(fields.Read("max_tokens", request.max_new_tokens));
  request.default_new_tokens = kDefaultNewTokens;
  LK_RETURN_IF_ERROR(ReadLogprobs(fields, own, request));
  for (const char* key : {"tools", "tool_choice", "messages", "chat_template_kwargs",
                          "add_generation_prompt", "top_logprobs", "max_completion_tokens"}) {
    LK_RETURN_IF_ERROR(fields.Refuse(key, "a field of /v1/chat/completions"));
  }
  LK_RETURN_IF_ERROR(fields.Accept("add_special_tokens", true));
  LK_RETURN_IF_ERROR(ReadResponseFormat(fields, body, request.response_format));
  LK_RETURN_IF_ERROR(fields.CheckRest(options.unknown_fields));
  LK_RETURN_IF_ERROR(CheckChoices(own, request, context.tenant));
  // Before each prompt has a copy of the fields.
  LK_RETURN_IF_ERROR(WithApiNames(service.CheckFields(request)));
  if (own.echo.echoes) LK_RETURN_IF_ERROR(TakeEcho(service, own));
  AnswerForm form = FormOf(common, own, fingerprint);
  if (own.prompts.size() > 1) {
    LK_RETURN_IF_ERROR(TakeSeveral(service, context, call, request, own));
  }
  if (request.prompt_logprobs.has_value() || form.includes_continuous_usage) {
    LK_RETURN_IF_ERROR(TakeTokens(service, context, call, own, form));
  }
  if (request.prompt_logprobs.has_value()) {
    LK_RETURN_IF_ERROR(CheckPromptLogprobs(form.n_prompt_tokens, *request.prompt_logprobs,
                                           static_cast<int32_t>(form.n)));
  }
  Generations result;
  result.is_stream = common.is_stream;
  result.id = common.answer_id;
  result.deadline = common.deadline;
  for (size_t i = 0; i < own.prompts.size(); ++i) {
    GenerationRequest& one = result.requests.emplace_back(request);
    std::visit([&one](auto& input) { one.input = std::move(input); }, own.prompts[i]);
    one.is_begun = i > 0;
    if (i > 0) absl::StrAppend(&one.request_id, "-", i);
  }
  result.writer =
      std::make_shared<CompletionAnswer>(std::move(form), std::move(own.echo), service.tokenizer());
  return result;
}

}  // namespace lowkey
