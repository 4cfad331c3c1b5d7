#include "server/api/openai/chat.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/api/openai/chat_answer.h"
#include "server/api/openai/error_names.h"
#include "server/api/openai/requests/answer_plan.h"
#include "server/api/openai/requests/messages.h"
#include "server/api/openai/requests/request_reader.h"
#include "server/api/openai/requests/response_format.h"
#include "server/api/openai/requests/tools.h"

namespace lowkey {
namespace {

absl::Status ReadLength(const OpenAiOptions& options, Fields& fields, GenerationRequest& request) {
  std::optional<int32_t> older, newer;
  LK_RETURN_IF_ERROR(fields.Read("max_tokens", older));
  LK_RETURN_IF_ERROR(fields.Read("max_completion_tokens", newer));
  if (older.has_value() && newer.has_value() && *older != *newer) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens: ", *older,
                                                   ", but max_completion_tokens is ", *newer,
                                                   ", expected one of them"));
  }
  request.max_new_tokens = newer.has_value() ? newer : older;
  if (options.fills_context) request.default_new_tokens = std::numeric_limits<int32_t>::max();
  return absl::OkStatus();
}

absl::Status ReadLogprobs(Fields& fields, std::optional<int32_t>& logprobs) {
  bool is_on = false;
  std::optional<int32_t> n_top;
  LK_RETURN_IF_ERROR(fields.Read("logprobs", is_on));
  LK_RETURN_IF_ERROR(fields.Read("top_logprobs", n_top));
  if (n_top.has_value() && *n_top != 0 && !is_on) {
    return absl::InvalidArgumentError("top_logprobs: set, expected logprobs true beside it");
  }
  if (!is_on) return absl::OkStatus();
  logprobs = n_top.value_or(0);
  return CheckRange("top_logprobs", *logprobs, 0, kMaxLogprobs);
}

// Reads the fields that only chats have.
absl::Status ReadFields(const OpenAiOptions& options, const std::string& body, Fields& fields,
                        GenerationRequest& request, RequestedTools& tools) {
  LK_ASSIGN_OR_RETURN(tools, ReadTools(fields, body));
  LK_ASSIGN_OR_RETURN(request.input, ReadConversation(fields, body, tools, options.unknown_fields));
  LK_RETURN_IF_ERROR(ReadLength(options, fields, request));
  LK_RETURN_IF_ERROR(ReadLogprobs(fields, request.logprobs));
  for (const char* key : {"prompt", "echo", "prompt_logprobs"}) {
    LK_RETURN_IF_ERROR(fields.Refuse(key, "a field of /v1/completions"));
  }
  LK_RETURN_IF_ERROR(fields.Accept("add_special_tokens", false));
  LK_RETURN_IF_ERROR(fields.Accept("continue_final_message", false));
  LK_RETURN_IF_ERROR(ReadResponseFormat(fields, body, request.response_format));
  LK_RETURN_IF_ERROR(fields.CheckRest(options.unknown_fields));
  return CheckRange("n", request.n.value_or(1), 1, kMaxChoices);
}

}  // namespace

absl::StatusOr<Generations> ReadChat(const TextService& service, const OpenAiOptions& options,
                                     const std::string& fingerprint, const RpcContext& context,
                                     const CallState& call, const std::string& body) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json object, ParseBody(body));
  Fields fields(object);
  CommonRequest common;
  RequestedTools tools;
  LK_RETURN_IF_ERROR(ReadCommon(service, options, context.id, fields, common));
  GenerationRequest& request = common.request;
  LK_RETURN_IF_ERROR(ReadFields(options, body, fields, request, tools));
  const absl::StatusOr<ChatParsing> parsing = PlanAnswer(service, options, context, tools, request);
  if (!parsing.ok()) return WithApiNames(parsing.status());
  Generations result;
  result.is_stream = common.is_stream;
  result.id = common.answer_id;
  result.deadline = common.deadline;
  AnswerForm form = {.id = absl::StrCat("chatcmpl-", request.request_id),
                     .model = std::move(common.model),
                     .fingerprint = fingerprint,
                     .created = absl::ToUnixSeconds(DateNow()),
                     .n_prompts = 1,
                     .n = static_cast<size_t>(request.n.value_or(1)),
                     .includes_usage = common.includes_usage,
                     .includes_continuous_usage = common.includes_continuous_usage,
                     .logprobs = request.logprobs};
  if (form.includes_continuous_usage) {
    LK_ASSIGN_OR_RETURN(
        TokenList tokens,
        PromptTokens(service, context, call, std::get<Conversation>(std::move(request.input))));
    form.n_prompt_tokens = static_cast<int64_t>(tokens.size());
    request.input = std::move(tokens);
  }
  result.writer = std::make_shared<ChatAnswer>(std::move(form), *parsing, service.tokenizer());
  result.requests.push_back(std::move(request));
  return result;
}

}  // namespace lowkey
