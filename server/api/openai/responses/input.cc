#include "server/api/openai/responses/input.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/api/openai/error_names.h"
#include "server/api/openai/requests/messages.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr std::string_view kParts[] = {"input_text", "output_text", "text"};
constexpr std::string_view kReasoningParts[] = {"reasoning_text", "text"};

// The items so far, as messages.
struct History {
  std::vector<ChatMessage>& messages;
  std::optional<std::string> reasoning = {};  // of the assistant's message that follows
};

// A text that an item must have.
absl::StatusOr<std::string> Required(Fields& item, const char* key, std::string_view expected) {
  std::optional<std::string> text;
  LK_RETURN_IF_ERROR(item.Read(key, text));
  if (!text.has_value() || text->empty()) return item.Error(key, expected);
  return *std::move(text);
}

absl::Status ReadMessage(Fields& item, UnknownFields unknown, History& history) {
  constexpr char kRoles[] = "user, assistant, system or developer";
  LK_ASSIGN_OR_RETURN(std::string role, Required(item, "role", kRoles));
  if (role == "developer") role = "system";
  if (role != "user" && role != "assistant" && role != "system") return item.Error("role", kRoles);
  ChatMessage message;
  message.role = std::move(role);
  LK_RETURN_IF_ERROR(ReadTexts(item, "content", kParts, unknown, message.content));
  if (!message.content.has_value()) return item.Error("content", "a text or an array of parts");
  if (message.role == "assistant") message.reasoning_content = std::move(history.reasoning);
  history.reasoning.reset();
  history.messages.push_back(std::move(message));
  return absl::OkStatus();
}

absl::Status ReadCall(Fields& item, History& history) {
  ToolCall call;
  LK_ASSIGN_OR_RETURN(call.id, Required(item, "call_id", "the call's id"));
  LK_ASSIGN_OR_RETURN(call.name, Required(item, "name", "a function's name"));
  LK_ASSIGN_OR_RETURN(call.arguments_json, ReadArguments(item));
  std::vector<ChatMessage>& messages = history.messages;
  if (messages.empty() || messages.back().role != "assistant" || history.reasoning.has_value()) {
    messages.push_back(
        {.role = "assistant", .reasoning_content = std::exchange(history.reasoning, {})});
  }
  std::vector<ToolCall>& calls = messages.back().tool_calls;
  if (calls.size() >= kMaxToolCalls) {
    return item.Error("name",
                      absl::StrCat("at most ", kMaxToolCalls, " calls before their outputs"));
  }
  calls.push_back(std::move(call));
  return absl::OkStatus();
}

absl::Status ReadOutput(Fields& item, UnknownFields unknown, History& history) {
  ChatMessage message;
  message.role = "tool";
  LK_ASSIGN_OR_RETURN(message.tool_call_id, Required(item, "call_id", "the id of a call"));
  LK_RETURN_IF_ERROR(ReadTexts(item, "output", kParts, unknown, message.content));
  if (!message.content.has_value()) return item.Error("output", "a text or an array of parts");
  history.messages.push_back(std::move(message));
  return absl::OkStatus();
}

// An answer's own item comes back before the message or the calls that it led to.
absl::Status ReadReasoning(Fields& item, UnknownFields unknown, History& history) {
  for (const char* key : {"summary", "encrypted_content"}) item.Ignore(key);
  LK_RETURN_IF_ERROR(ReadTexts(item, "content", kReasoningParts, unknown, history.reasoning));
  if (history.reasoning == "") history.reasoning.reset();
  return absl::OkStatus();
}

absl::Status ReadItem(const json& value, const std::string& name, UnknownFields unknown,
                      History& history) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields item(value, name + ".");
  std::optional<std::string> type;
  LK_RETURN_IF_ERROR(item.Read("type", type));
  for (const char* key : {"id", "status"}) item.Ignore(key);
  if (!type.has_value() || *type == "message") {
    LK_RETURN_IF_ERROR(ReadMessage(item, unknown, history));
  } else if (*type == "function_call") {
    LK_RETURN_IF_ERROR(ReadCall(item, history));
  } else if (*type == "function_call_output") {
    LK_RETURN_IF_ERROR(ReadOutput(item, unknown, history));
  } else if (*type == "reasoning") {
    LK_RETURN_IF_ERROR(ReadReasoning(item, unknown, history));
  } else {
    return absl::UnimplementedError(absl::StrCat(
        name, ".type: \"", type->substr(0, 64),
        "\" is not supported, expected message, function_call, function_call_output or reasoning"));
  }
  return item.CheckRest(unknown);
}

absl::Status ReadItems(Fields& fields, UnknownFields unknown, std::vector<ChatMessage>& messages) {
  const json* value = fields.Take("input");
  if (value != nullptr && value->is_string()) {
    messages.push_back({.role = "user", .content = value->get<std::string>()});
    return absl::OkStatus();
  }
  if (value == nullptr || !value->is_array() || value->empty() ||
      value->size() > kMaxChatMessages) {
    return fields.Error("input",
                        absl::StrCat("a text or an array of 1..", kMaxChatMessages, " items"));
  }
  History history{messages};
  for (size_t i = 0; i < value->size(); ++i) {
    LK_RETURN_IF_ERROR(ReadItem((*value)[i], absl::StrCat("input[", i, "]"), unknown, history));
  }
  return absl::OkStatus();
}

// Returns one tool as chats have it: what describes the function is an object of its own.
std::string ToolOfChat(const json& tool, std::string_view text) {
  if (!tool.is_object() || tool.value("type", json()) != "function") return std::string(text);
  return absl::StrCat("{\"type\":\"function\",\"function\":", WithoutMember(text, "type"), "}");
}

std::string ToolsOfChat(const json& tools, std::string_view text) {
  if (!tools.is_array()) return std::string(text);
  std::string chat = "[";
  const std::vector<std::string_view> elements = ElementTexts(text);
  for (size_t i = 0; i < elements.size(); ++i) {
    absl::StrAppend(&chat, i > 0 ? "," : "", ToolOfChat(tools[i], elements[i]));
  }
  return chat + "]";
}

// Returns a `tool_choice` as chats have it: they keep the mode and the tools of one that allows
// some tools in an object of its own.
std::string ToolChoiceOfChat(const json& choice, std::string_view text) {
  if (!choice.is_object() || choice.value("type", json()) != "allowed_tools") {
    return ToolOfChat(choice, text);
  }
  const std::string rest = WithoutMember(WithoutMember(text, "type"), "tools");
  const auto tools = choice.find("tools");
  if (tools == choice.end()) {
    return absl::StrCat("{\"type\":\"allowed_tools\",\"allowed_tools\":", rest, "}");
  }
  return absl::StrCat("{\"type\":\"allowed_tools\",\"allowed_tools\":",
                      rest.substr(0, rest.rfind('}')), choice.size() > 2 ? "," : "",
                      "\"tools\":", ToolsOfChat(*tools, MemberText(text, "tools")), "}}");
}

// Returns the fields about tools as chats have them, so that one reader serves both endpoints.
std::string ToolFieldsOfChat(Fields& fields, const std::string& body) {
  std::string chat = "{";
  if (const json* tools = fields.Take("tools"); tools != nullptr) {
    chat += "\"tools\":" + ToolsOfChat(*tools, MemberText(body, "tools"));
  }
  for (const char* key : {"tool_choice", "parallel_tool_calls"}) {
    const json* value = fields.Take(key);
    if (value == nullptr) continue;
    const std::string_view text = MemberText(body, key);
    absl::StrAppend(&chat, chat.size() > 1 ? ",\"" : "\"", key,
                    "\":", ToolChoiceOfChat(*value, text));
  }
  return chat + "}";
}

}  // namespace

absl::StatusOr<Conversation> ReadInput(Fields& fields, const std::string& body,
                                       UnknownFields unknown, RequestedTools& tools) {
  Conversation conversation;
  std::optional<std::string> instructions;
  LK_RETURN_IF_ERROR(fields.Read("instructions", instructions));
  if (instructions.has_value()) {
    conversation.messages.push_back({.role = "system", .content = *std::move(instructions)});
  }
  LK_RETURN_IF_ERROR(ReadItems(fields, unknown, conversation.messages));
  const std::string chat = ToolFieldsOfChat(fields, body);
  LK_ASSIGN_OR_RETURN(const json object, ParseBody(chat));
  Fields tool_fields(object);
  absl::StatusOr<RequestedTools> requested = ReadTools(tool_fields, chat);
  if (!requested.ok()) return WithApiNames(requested.status(), FieldNames::kResponses);
  tools = *std::move(requested);
  conversation.tools_json = tools.json;
  LK_RETURN_IF_ERROR(ReadTemplateFields(fields, body, conversation));
  return conversation;
}

}  // namespace lowkey
