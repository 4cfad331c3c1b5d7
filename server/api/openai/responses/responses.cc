#include "server/api/openai/responses/responses.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/api/http/json_writer.h"
#include "server/api/openai/requests/answer_plan.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/api/openai/requests/request_reader.h"
#include "server/api/openai/requests/response_format.h"
#include "server/api/openai/responses/input.h"
#include "server/api/openai/responses/response_answer.h"

namespace lowkey {
namespace {

using nlohmann::json;

// OpenAI's bounds of `metadata`.
constexpr size_t kMaxMetadata = 16, kMaxMetadataKeyBytes = 64, kMaxMetadataBytes = 512;

// Fields that need what this server does not keep or have.
absl::Status RefuseState(Fields& fields) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    LK_RETURN_IF_ERROR(fields.Refuse(key, "the server keeps no answers and no prompts"));
  }
  LK_RETURN_IF_ERROR(fields.Accept("background", false));
  LK_RETURN_IF_ERROR(fields.Accept("include", json::array()));
  LK_RETURN_IF_ERROR(fields.Accept("truncation", "disabled"));
  LK_RETURN_IF_ERROR(fields.Accept("top_logprobs", 0));
  LK_RETURN_IF_ERROR(fields.Refuse("reasoning", "chat_template_kwargs speaks to the template"));
  fields.Ignore("max_tool_calls");  // of tools that a server has of its own
  for (const char* key :
       {"messages", "max_tokens", "max_completion_tokens", "logprobs", "response_format"}) {
    LK_RETURN_IF_ERROR(fields.Refuse(key, "a field of /v1/chat/completions"));
  }
  return absl::OkStatus();
}

absl::Status ReadText(Fields& fields, const std::string& body,
                      std::optional<ResponseFormat>& format) {
  const json* value = fields.Take("text");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object()) return fields.Error("text", "an object");
  Fields text(*value, "text.");
  LK_RETURN_IF_ERROR(ReadTextFormat(text, MemberText(body, "text"), format));
  LK_RETURN_IF_ERROR(text.Accept("verbosity", "medium"));
  return text.CheckAll();
}

// Metadata comes back in every event with a response.
absl::Status CheckMetadata(Fields& fields) {
  const json* metadata = fields.Take("metadata");
  if (metadata == nullptr) return absl::OkStatus();
  bool fits = metadata->is_object() && metadata->size() <= kMaxMetadata;
  for (auto it = metadata->begin(); fits && it != metadata->end(); ++it) {
    fits = it.key().size() <= kMaxMetadataKeyBytes && it->is_string() &&
           it->get_ref<const std::string&>().size() <= kMaxMetadataBytes;
  }
  if (fits) return absl::OkStatus();
  return fields.Error(
      "metadata", absl::StrCat("an object of at most ", kMaxMetadata, " texts of ",
                               kMaxMetadataBytes, " bytes, with keys of ", kMaxMetadataKeyBytes));
}

void WriteNumber(const std::optional<float>& number, JsonWriter& writer) {
  number.has_value() ? writer.Float(*number) : writer.Null();
}

// Returns the response's members that repeat the request.
std::string EchoOf(const json& object, const CommonRequest& common) {
  std::string echo;
  JsonWriter writer(echo);
  // The client's own JSON, in one line.
  const auto repeat = [&](const char* key, const char* otherwise) {
    const auto it = object.find(key);
    const bool has_value = it != object.end() && !it->is_null();
    writer.Key(key).Raw(has_value ? it->dump() : otherwise);
  };
  writer.Key("model").Text(common.model).Key("background").Bool(false).Key("store").Bool(false);
  writer.Key("previous_response_id").Null().Key("truncation").Text("disabled");
  for (const char* key : {"instructions", "max_output_tokens", "max_tool_calls", "user",
                          "safety_identifier", "prompt_cache_key"}) {
    repeat(key, "null");
  }
  repeat("metadata", "{}");
  repeat("tools", "[]");
  repeat("tool_choice", "\"auto\"");
  repeat("parallel_tool_calls", "true");
  writer.Key("temperature");
  WriteNumber(common.request.sampling.temperature, writer);
  writer.Key("top_p").Float(common.request.sampling.top_p.value_or(1.0f));
  writer.Key("text").BeginObject().Key("format");
  const json text = object.value("text", json());
  const bool has_format = text.is_object() && text.contains("format") && !text["format"].is_null();
  writer.Raw(has_format ? text["format"].dump() : "{\"type\":\"text\"}").EndObject();
  return echo;
}

}  // namespace

absl::StatusOr<Generations> ReadResponses(const TextService& service, const OpenAiOptions& options,
                                          const RpcContext& context, const std::string& body) {
  LK_ASSIGN_OR_RETURN(const json object, ParseBody(body));
  Fields fields(object);
  CommonRequest common;
  LK_RETURN_IF_ERROR(ReadCommon(service, options, context.id, fields, common));
  LK_RETURN_IF_ERROR(RefuseState(fields));
  LK_RETURN_IF_ERROR(fields.Accept("n", 1));
  if (common.includes_continuous_usage) {
    return absl::UnimplementedError("stream_options.continuous_usage_stats: not supported");
  }
  GenerationRequest& request = common.request;
  LK_RETURN_IF_ERROR(fields.Read("max_output_tokens", request.max_new_tokens));
  if (options.fills_context) request.default_new_tokens = std::numeric_limits<int32_t>::max();
  RequestedTools tools;
  LK_ASSIGN_OR_RETURN(request.input, ReadInput(fields, body, options.unknown_fields, tools));
  LK_RETURN_IF_ERROR(ReadText(fields, body, request.response_format));
  LK_RETURN_IF_ERROR(ReadResponseFormat(fields, body, request.response_format));
  LK_RETURN_IF_ERROR(CheckMetadata(fields));
  LK_RETURN_IF_ERROR(fields.CheckRest(options.unknown_fields));
  const absl::StatusOr<ChatParsing> parsing = PlanAnswer(service, options, context, tools, request);
  if (!parsing.ok()) return WithApiNames(parsing.status(), FieldNames::kResponses);
  Generations result;
  result.is_stream = common.is_stream;
  result.id = common.answer_id;
  result.deadline = common.deadline;
  result.names = FieldNames::kResponses;
  ResponseRequest asked = {.id = request.request_id,
                           .form = common.is_stream ? ResponseForm::kStream : ResponseForm::kWhole,
                           .created = absl::ToUnixSeconds(DateNow()),
                           .echo = EchoOf(object, common)};
  result.writer =
      std::make_shared<ResponseAnswer>(std::move(asked), MakeParser(*parsing), service.tokenizer());
  result.requests.push_back(std::move(request));
  return result;
}

}  // namespace lowkey
