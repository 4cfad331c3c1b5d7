#include "server/api/openai/error_names.h"

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

struct Renamed {
  std::string_view begin;  // of a message
  std::string_view name;
  std::string_view name_of_responses = name;
};

// The first that fits counts.
constexpr Renamed kRenamed[] = {
    {"sampling: ", ""},
    {"chat.messages", "messages", "input"},
    {"chat: tools_json: ", "tools: "},
    {"chat: variables_json: ", "chat_template_kwargs: "},
    {"chat: ", "messages: ", "input: "},
    {"messages: ", "messages: ", "input: "},
    {"text: ", "prompt: ", "input: "},
    {"token_ids", "prompt", "input"},
    {"prompt: ", "prompt: ", "input: "},
    {"max_new_tokens: ", "max_tokens: ", "max_output_tokens: "},
    {"prompt and max_new_tokens: ", "max_tokens: prompt and answer have ",
     "max_output_tokens: input and answer have "},
    {"prompt + max_new_tokens: ", "max_tokens: prompt and answer have ",
     "max_output_tokens: input and answer have "},
    {"response_format", "response_format", "text.format"},
    {"attention: ", "lowkey.attention."},
    {"attention.", "lowkey.attention."},
    {"prefix_marks", "lowkey.prefix_marks"},
    {"draft: ", "lowkey.draft: "},
};

absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status changed(status.code(), absl::string_view(message.data(), message.size()));
  status.ForEachPayload([&changed](absl::string_view type, const absl::Cord& payload) {
    changed.SetPayload(type, payload);
  });
  return changed;
}

// Chats have objects of their own for a function and for allowed tools:
// "tool_choice.allowed_tools.tools[0].function.name".
std::string WithoutObjects(std::string message) {
  for (const std::string_view inner : {".allowed_tools", ".function"}) {
    const size_t at = message.find(inner);
    if (at < message.find(": ")) message.erase(at, inner.size());
  }
  return message;
}

}  // namespace

absl::Status WithApiNames(const absl::Status& status, FieldNames names) {
  const std::string message(status.message());
  for (const Renamed& renamed : kRenamed) {
    const std::string begin(renamed.begin);
    if (!absl::StartsWith(message, begin)) continue;
    const std::string_view name =
        names == FieldNames::kResponses ? renamed.name_of_responses : renamed.name;
    return WithMessage(status, absl::StrCat(std::string(name), message.substr(begin.size())));
  }
  const bool is_of_tools =
      absl::StartsWith(message, "tools[") || absl::StartsWith(message, "tool_choice.");
  if (names == FieldNames::kResponses && is_of_tools) {
    return WithMessage(status, WithoutObjects(message));
  }
  return status;
}

}  // namespace lowkey
