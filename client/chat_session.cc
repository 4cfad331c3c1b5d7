#include "client/chat_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "server/config/common_flags.h"
#include "server/config/help.h"
#include "server/config/suggestions.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

std::string HelpLines() {
  const std::vector<Entry> entries = {
      {"/attention NAME [--rank R ...]",
       "how the next answers attend: a mechanism, with the flags of `lowkey generate`; without "
       "NAME: "
       "the server's default"},
      {"/system TEXT", "the system message; without TEXT: none"},
      {"/reset", "forget the conversation"},
      {"/help", "this"},
      {"/exit", "leave, as ctrl-D does; ctrl-C ends an answer"},
      {"//...", "a message that begins with a slash"},
  };
  const size_t columns = std::min(StyleOf(stderr).columns, kHelpColumns);
  std::string lines = EntryLines(entries, HeadWidth(entries, columns), columns);
  lines.pop_back();
  return lines;
}

std::string Asked(const std::string& line) {
  return line.starts_with("//") ? line.substr(1) : line;
}

}  // namespace

ChatSession::ChatSession(GenerationRequest request, std::string system)
    : request_(std::move(request)), system_(std::move(system)) {}

bool ChatSession::IsCommand(std::string_view line) {
  return line.starts_with('/') && !line.starts_with("//");
}

absl::StatusOr<std::string> ChatSession::SetAttention(const std::vector<std::string>& arguments) {
  LK_ASSIGN_OR_RETURN(AttentionChoice choice, ParseAttention(arguments));
  // A choice that the server would refuse is refused here, while the line can still be corrected.
  if (choice.mechanism.has_value()) {
    LK_RETURN_IF_ERROR(ResolveSelectable(choice, Defaults()).status());
  }
  request_.attention = std::move(choice);
  return request_.attention.mechanism.has_value()
             ? absl::StrCat("attention: ", *request_.attention.mechanism)
             : std::string("attention: the server's default");
}

absl::StatusOr<std::string> ChatSession::RunCommand(const std::string& line) {
  std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipWhitespace());
  const std::string name = words[0];
  words.erase(words.begin());
  if (name == "/attention") return SetAttention(words);
  if (name == "/system") {
    system_ = std::string(absl::StripAsciiWhitespace(line.substr(name.size())));
    return std::string(system_.empty() ? "no system message" : "system message set");
  }
  const bool is_exit = name == "/exit" || name == "/quit";
  if (is_exit || name == "/help" || name == "/reset") {
    if (!words.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": takes nothing more"));
    }
    is_over_ = is_exit;
    if (name == "/reset") history_.clear();
    if (name == "/help") return HelpLines();
    return std::string(is_exit ? "" : "the conversation begins anew");
  }
  const std::string_view known[] = {"/attention", "/system", "/reset", "/help", "/exit"};
  const std::optional<std::string_view> nearest = NearestName(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown command ", name,
                   nearest.has_value() ? DidYouMean(nearest, "") : "; /help lists them"));
}

GenerationRequest ChatSession::Ask(const std::string& line) const {
  Conversation conversation;
  if (!system_.empty()) conversation.messages.push_back({.role = "system", .content = system_});
  conversation.messages.insert(conversation.messages.end(), history_.begin(), history_.end());
  conversation.messages.push_back({.role = "user", .content = Asked(line)});
  GenerationRequest request = request_;
  request.input = std::move(conversation);
  return request;
}

void ChatSession::Keep(const std::string& line, const std::string& answer) {
  history_.push_back({.role = "user", .content = Asked(line)});
  history_.push_back({.role = "assistant", .content = answer});
}

}  // namespace lowkey
