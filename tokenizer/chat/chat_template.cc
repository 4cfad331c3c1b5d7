#include "tokenizer/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/jinja/interpreter.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/chat/jinja/syntax.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey {
namespace {

using jinja::Arena;
using jinja::Dict;
using jinja::Text;
using jinja::Value;
using Variables = absl::flat_hash_map<std::string, Value>;

// Makes a template's variables in an arena.
class VariableBuilder {
 public:
  explicit VariableBuilder(Arena& arena) : arena_(arena) {}

  absl::StatusOr<Variables> Build(const Conversation& conversation,
                                  const TemplateContext& context) {
    LK_ASSIGN_OR_RETURN(Variables variables, Given(conversation.variables_json));
    // Both names are set even without a value: templates compare them with none.
    variables["documents"] = Value(jinja::None());
    variables["tools"] = Value(jinja::None());
    if (!conversation.tools_json.empty()) {
      LK_ASSIGN_OR_RETURN(const Value tools, Json("tools_json", conversation.tools_json));
      if (tools.AsList() == nullptr) {
        return absl::InvalidArgumentError("tools_json: expected a JSON array");
      }
      variables["tools"] = tools;
    }
    std::vector<Value> messages;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
      LK_ASSIGN_OR_RETURN(messages.emplace_back(),
                          Message(absl::StrCat("messages[", i, "]"), conversation.messages[i]));
    }
    LK_ASSIGN_OR_RETURN(variables["messages"], arena_.MakeList(std::move(messages)));
    variables["add_generation_prompt"] = Value(conversation.add_generation_prompt);
    if (context.bos_token.has_value()) {
      LK_ASSIGN_OR_RETURN(variables["bos_token"], arena_.MakeText(*context.bos_token));
    }
    if (context.eos_token.has_value()) {
      LK_ASSIGN_OR_RETURN(variables["eos_token"], arena_.MakeText(*context.eos_token));
    }
    return variables;
  }

 private:
  absl::StatusOr<Variables> Given(const std::string& json) {
    Variables variables;
    if (json.empty()) return variables;
    LK_ASSIGN_OR_RETURN(const Value given, Json("variables_json", json));
    if (given.AsDict() == nullptr) {
      return absl::InvalidArgumentError("variables_json: expected a JSON object");
    }
    for (const Dict::Entry& entry : given.AsDict()->entries()) {
      variables[entry.key->bytes()] = entry.value;
    }
    return variables;
  }

  absl::StatusOr<Value> Json(const std::string& field, const std::string& json) {
    return Prefixed(field, jinja::FromJson(json, arena_));
  }

  absl::Status Set(Dict& dict, const char* key, const absl::StatusOr<Value>& value) {
    LK_RETURN_IF_ERROR(value.status());
    LK_ASSIGN_OR_RETURN(const Value name, arena_.MakeText(std::string(key)));
    dict.Set(name.AsText(), *value);
    return absl::OkStatus();
  }

  absl::Status SetUserText(Dict& dict, const char* key, const std::optional<std::string>& text) {
    if (!text.has_value()) return absl::OkStatus();
    return Set(dict, key, arena_.MakeText(Text::FromUser(*text)));
  }

  absl::StatusOr<Value> Message(const std::string& field, const ChatMessage& message) {
    Dict dict;
    LK_RETURN_IF_ERROR(Set(dict, "role", arena_.MakeText(message.role)));
    LK_RETURN_IF_ERROR(SetUserText(dict, "content", message.content));
    LK_RETURN_IF_ERROR(SetUserText(dict, "name", message.name));
    LK_RETURN_IF_ERROR(SetUserText(dict, "tool_call_id", message.tool_call_id));
    LK_RETURN_IF_ERROR(SetUserText(dict, "reasoning_content", message.reasoning_content));
    std::vector<Value> calls;
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
      LK_ASSIGN_OR_RETURN(calls.emplace_back(),
                          Call(absl::StrCat(field, ".tool_calls[", i, "]"), message.tool_calls[i]));
    }
    if (!calls.empty()) {
      LK_RETURN_IF_ERROR(Set(dict, "tool_calls", arena_.MakeList(std::move(calls))));
    }
    return arena_.MakeDict(std::move(dict));
  }

  absl::StatusOr<Value> Call(const std::string& field, const ToolCall& call) {
    Dict function;
    LK_RETURN_IF_ERROR(SetUserText(function, "name", call.name));
    LK_RETURN_IF_ERROR(
        Set(function, "arguments", Json(field + ".arguments_json", call.arguments_json)));
    Dict dict;
    LK_RETURN_IF_ERROR(Set(dict, "type", arena_.MakeText(std::string("function"))));
    if (!call.id.empty()) LK_RETURN_IF_ERROR(SetUserText(dict, "id", call.id));
    LK_RETURN_IF_ERROR(Set(dict, "function", arena_.MakeDict(std::move(function))));
    return arena_.MakeDict(std::move(dict));
  }

  Arena& arena_;
};

// Returns whether an expression or a target of a parsed template has this name; comments and text
// do not count.
bool HasName(std::string_view source, std::string_view name) {
  const absl::StatusOr<std::vector<jinja::Token>> tokens = jinja::Tokenize(source);
  return tokens.ok() && std::any_of(tokens->begin(), tokens->end(),
                                    [name](const auto& token) { return token.IsName(name); });
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  LK_ASSIGN_OR_RETURN(jinja::Body body, Prefixed("chat template", jinja::ParseTemplate(source)));
  return ChatTemplate(std::make_shared<const jinja::Body>(std::move(body)), source,
                      HasName(source, "tools"));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const Conversation& conversation,
                                                  const TemplateContext& context,
                                                  const jinja::Limits& limits) const {
  Arena arena(limits, {context.now, context.time_zone});
  LK_ASSIGN_OR_RETURN(const Variables variables,
                      VariableBuilder(arena).Build(conversation, context));
  LK_ASSIGN_OR_RETURN(
      const Text text,
      Prefixed("chat template", jinja::Interpreter(variables, arena).Render(*body_)));
  return RenderedChat{text.bytes(), text.user_ranges()};
}

}  // namespace lowkey
