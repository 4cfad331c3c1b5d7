#include "server/text/chat.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

absl::Status FieldError(const std::string& field, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
}

absl::Status CheckCalls(const std::string& field, const ChatMessage& message) {
  if (message.tool_calls.empty()) return absl::OkStatus();
  if (message.role != "assistant") {
    return FieldError(
        field, absl::StrCat("set, but the role is \"", message.role, "\", expected \"assistant\""));
  }
  if (message.tool_calls.size() > kMaxToolCalls) {
    return FieldError(
        field, absl::StrCat(message.tool_calls.size(), " calls, expected at most ", kMaxToolCalls));
  }
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    const std::string name = absl::StrCat(field, "[", i, "]");
    LK_RETURN_IF_ERROR(CheckUtf8(name + ".id", call.id));
    LK_RETURN_IF_ERROR(CheckUtf8(name + ".name", call.name));
    if (call.name.empty()) return FieldError(name + ".name", "empty, expected a function's name");
    if (call.arguments_json.empty()) {
      return FieldError(name + ".arguments_json", "empty, expected JSON");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const std::string& field, const ChatMessage& message) {
  if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles)) {
    return FieldError(field + ".role",
                      absl::StrCat("\"", message.role.substr(0, 64),
                                   "\", expected system, user, assistant or tool"));
  }
  if (!message.content.has_value() && message.tool_calls.empty()) {
    return FieldError(field + ".content", "not set, expected a text");
  }
  LK_RETURN_IF_ERROR(CheckUtf8(field + ".content", message.content.value_or("")));
  LK_RETURN_IF_ERROR(CheckUtf8(field + ".name", message.name.value_or("")));
  LK_RETURN_IF_ERROR(CheckUtf8(field + ".tool_call_id", message.tool_call_id.value_or("")));
  LK_RETURN_IF_ERROR(
      CheckUtf8(field + ".reasoning_content", message.reasoning_content.value_or("")));
  return CheckCalls(field + ".tool_calls", message);
}

absl::Status CheckConversation(const Conversation& conversation) {
  const size_t n = conversation.messages.size();
  if (n == 0 || n > kMaxChatMessages) {
    return FieldError("chat.messages",
                      absl::StrCat(n, " messages, expected 1..", kMaxChatMessages));
  }
  for (size_t i = 0; i < n; ++i) {
    LK_RETURN_IF_ERROR(
        CheckMessage(absl::StrCat("chat.messages[", i, "]"), conversation.messages[i]));
  }
  return absl::OkStatus();
}

std::optional<std::string> PieceOf(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id.has_value()) return std::nullopt;
  const absl::StatusOr<std::string_view> piece = tokenizer.IdToPiece(*id);
  if (!piece.ok()) return std::nullopt;
  return std::string(*piece);
}

TemplateContext ContextOf(const Tokenizer& tokenizer) {
  const std::vector<int32_t>& ends = tokenizer.eos_ids();
  TemplateContext context;
  context.bos_token = PieceOf(tokenizer, tokenizer.bos_id());
  context.eos_token =
      PieceOf(tokenizer, ends.empty() ? std::nullopt : std::optional<int32_t>(ends[0]));
  context.now = DateNow();
  context.time_zone = absl::LocalTimeZone();
  return context;
}

// Returns the conversation with an empty text where a message has calls and no content; nullopt
// where none has.
std::optional<Conversation> WithEmptyContents(Conversation conversation) {
  bool has_some = false;
  for (ChatMessage& message : conversation.messages) {
    if (message.content.has_value()) continue;
    message.content = "";
    has_some = true;
  }
  if (!has_some) return std::nullopt;
  return conversation;
}

// Clients send calls without content, which some templates cannot work with: these are given an
// empty one. Others tell the two apart.
absl::StatusOr<RenderedChat> Render(const ChatTemplate& chat_template,
                                    const Conversation& conversation,
                                    const TemplateContext& context) {
  absl::StatusOr<RenderedChat> rendered = chat_template.Render(conversation, context);
  if (!absl::IsInvalidArgument(rendered.status())) return rendered;
  if (const auto filled = WithEmptyContents(conversation); filled.has_value()) {
    absl::StatusOr<RenderedChat> again = chat_template.Render(*filled, context);
    if (again.ok()) return again;
  }
  return rendered;
}

}  // namespace

absl::StatusOr<RenderedChat> RenderChat(const Conversation& conversation,
                                        const ChatTemplates& templates, const Tokenizer& tokenizer,
                                        size_t max_bytes) {
  LK_RETURN_IF_ERROR(CheckConversation(conversation));
  const auto tools =
      conversation.tools_json.empty() ? ChatTemplates::Tools::kNone : ChatTemplates::Tools::kSome;
  const absl::StatusOr<ChatTemplate>& chat_template = templates.Find(tools);
  if (!chat_template.ok()) return chat_template.status();
  absl::StatusOr<RenderedChat> rendered =
      Render(*chat_template, conversation, ContextOf(tokenizer));
  // The same messages would pass the same limit again.
  if (!rendered.ok()) return FieldError("chat", std::string(rendered.status().message()));
  if (rendered->text.size() > max_bytes) {
    return absl::OutOfRangeError(absl::StrCat("chat: ", rendered->text.size(),
                                              " bytes as the template writes it, expected at most ",
                                              max_bytes));
  }
  return rendered;
}

absl::StatusOr<ChatPrompt> MakeChatPrompt(const Conversation& conversation,
                                          const ChatTemplates& templates,
                                          const Tokenizer& tokenizer, const PromptLimits& limits) {
  LK_ASSIGN_OR_RETURN(RenderedChat rendered,
                      RenderChat(conversation, templates, tokenizer, limits.max_bytes));
  EncodeOptions options;
  options.add_bos = false;
  options.add_eos = false;
  options.parse_special = true;
  options.literal_ranges = rendered.user_ranges;
  options.interrupt = limits.interrupt;
  LK_ASSIGN_OR_RETURN(TokenList tokens, Prefixed("chat", tokenizer.Encode(rendered.text, options)));
  return ChatPrompt{std::move(rendered.text), std::move(tokens)};
}

}  // namespace lowkey
