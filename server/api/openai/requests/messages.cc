#include "server/api/openai/requests/messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr std::string_view kTextParts[] = {"text"};
constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

// Appends a part's text to those of the parts before it.
absl::Status ReadPart(const json& value, const std::string& name,
                      absl::Span<const std::string_view> types, UnknownFields unknown,
                      std::optional<std::string>& text) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields part(value, name + ".");
  std::optional<std::string> type, more;
  LK_RETURN_IF_ERROR(part.Read("type", type));
  if (std::find(types.begin(), types.end(), type.value_or("")) == types.end()) {
    return absl::UnimplementedError(absl::StrCat(name, ".type: \"", type.value_or("").substr(0, 64),
                                                 "\" is not supported, expected \"",
                                                 std::string(types.front()), "\""));
  }
  LK_RETURN_IF_ERROR(part.Read("text", more));
  if (!more.has_value()) return part.Error("text", "a text");
  for (const char* key : {"cache_control", "annotations", "logprobs"}) part.Ignore(key);
  LK_RETURN_IF_ERROR(part.CheckRest(unknown));
  if (text.has_value()) {
    absl::StrAppend(&*text, "\n", *more);
  } else {
    text = std::move(more);
  }
  return absl::OkStatus();
}

absl::StatusOr<ToolCall> ReadCall(const json& value, const std::string& name,
                                  UnknownFields unknown) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields fields(value, name + ".");
  LK_RETURN_IF_ERROR(fields.Accept("type", "function"));
  std::optional<std::string> id;
  LK_RETURN_IF_ERROR(fields.Read("id", id));
  fields.Ignore("index");
  const json* function = fields.Take("function");
  if (function == nullptr || !function->is_object()) return fields.Error("function", "an object");
  Fields inner(*function, name + ".function.");
  std::optional<std::string> called;
  LK_RETURN_IF_ERROR(inner.Read("name", called));
  if (called.value_or("").empty()) return inner.Error("name", "a function's name");
  LK_ASSIGN_OR_RETURN(std::string arguments, ReadArguments(inner));
  LK_RETURN_IF_ERROR(inner.CheckRest(unknown));
  LK_RETURN_IF_ERROR(fields.CheckRest(unknown));
  return ToolCall{id.value_or(""), *std::move(called), std::move(arguments)};
}

absl::Status ReadCalls(Fields& fields, const std::string& name, UnknownFields unknown,
                       std::vector<ToolCall>& calls) {
  const json* value = fields.Take("tool_calls");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array() || value->size() > kMaxToolCalls) {
    return fields.Error("tool_calls",
                        absl::StrCat("an array of at most ", kMaxToolCalls, " calls"));
  }
  for (size_t i = 0; i < value->size(); ++i) {
    LK_ASSIGN_OR_RETURN(calls.emplace_back(),
                        ReadCall((*value)[i], absl::StrCat(name, ".tool_calls[", i, "]"), unknown));
  }
  return absl::OkStatus();
}

// Reads what only answers have that a client sends back.
absl::Status ReadAnswer(Fields& fields, ChatMessage& message) {
  std::optional<std::string> refusal, reasoning;
  LK_RETURN_IF_ERROR(fields.Read("refusal", refusal));
  if (!message.content.has_value()) message.content = std::move(refusal);
  // The field has both names among servers.
  LK_RETURN_IF_ERROR(fields.Read("reasoning", reasoning));
  LK_RETURN_IF_ERROR(fields.Read("reasoning_content", message.reasoning_content));
  if (!message.reasoning_content.has_value()) message.reasoning_content = std::move(reasoning);
  fields.Ignore("annotations");
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> ReadMessage(const json& value, const std::string& name,
                                        UnknownFields unknown) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields fields(value, name + ".");
  std::optional<std::string> role;
  LK_RETURN_IF_ERROR(fields.Read("role", role));
  if (std::find(std::begin(kRoles), std::end(kRoles), role.value_or("")) == std::end(kRoles)) {
    return fields.Error("role", "system, developer, user, assistant or tool");
  }
  ChatMessage message;
  message.role = *role == "developer" ? "system" : *std::move(role);
  LK_RETURN_IF_ERROR(ReadTexts(fields, "content", kTextParts, unknown, message.content));
  LK_RETURN_IF_ERROR(fields.Read("name", message.name));
  LK_RETURN_IF_ERROR(fields.Read("tool_call_id", message.tool_call_id));
  LK_RETURN_IF_ERROR(ReadCalls(fields, name, unknown, message.tool_calls));
  LK_RETURN_IF_ERROR(ReadAnswer(fields, message));
  for (const char* key : {"audio", "function_call"}) LK_RETURN_IF_ERROR(fields.Refuse(key));
  LK_RETURN_IF_ERROR(fields.CheckRest(unknown));
  return message;
}

absl::Status ReadMessages(Fields& fields, UnknownFields unknown,
                          std::vector<ChatMessage>& messages) {
  const json* value = fields.Take("messages");
  if (value == nullptr || !value->is_array() || value->empty() ||
      value->size() > kMaxChatMessages) {
    return fields.Error("messages", absl::StrCat("an array of 1..", kMaxChatMessages, " messages"));
  }
  messages.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) {
    LK_ASSIGN_OR_RETURN(messages.emplace_back(),
                        ReadMessage((*value)[i], absl::StrCat("messages[", i, "]"), unknown));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTexts(Fields& fields, const char* key, absl::Span<const std::string_view> types,
                       UnknownFields unknown, std::optional<std::string>& text) {
  const json* value = fields.Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    text = value->get<std::string>();
    return absl::OkStatus();
  }
  if (!value->is_array()) return fields.Error(key, "a text or an array of parts");
  text = value->empty() ? std::optional<std::string>("") : std::nullopt;
  for (size_t i = 0; i < value->size(); ++i) {
    LK_RETURN_IF_ERROR(
        ReadPart((*value)[i], absl::StrCat(fields.NameOf(key), "[", i, "]"), types, unknown, text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadArguments(Fields& function) {
  std::optional<std::string> arguments;
  LK_RETURN_IF_ERROR(function.Read("arguments", arguments));
  if (arguments == "") return std::string("{}");
  if (!arguments.has_value() || !json::accept(*arguments)) {
    return function.Error("arguments", "a text with JSON");
  }
  return *std::move(arguments);
}

absl::Status ReadTemplateFields(Fields& fields, const std::string& body,
                                Conversation& conversation) {
  LK_RETURN_IF_ERROR(fields.Read("add_generation_prompt", conversation.add_generation_prompt));
  const json* variables = fields.Take("chat_template_kwargs");
  if (variables == nullptr) return absl::OkStatus();
  if (!variables->is_object()) return fields.Error("chat_template_kwargs", "an object");
  conversation.variables_json = MemberText(body, "chat_template_kwargs");
  return absl::OkStatus();
}

absl::StatusOr<Conversation> ReadConversation(Fields& fields, const std::string& body,
                                              const RequestedTools& tools, UnknownFields unknown) {
  Conversation conversation;
  LK_RETURN_IF_ERROR(ReadMessages(fields, unknown, conversation.messages));
  conversation.tools_json = tools.json;
  LK_RETURN_IF_ERROR(ReadTemplateFields(fields, body, conversation));
  return conversation;
}

}  // namespace lowkey
