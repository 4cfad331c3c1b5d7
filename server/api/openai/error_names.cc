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
};

// The first that fits counts.
constexpr Renamed kRenamed[] = {
    {"sampling: ", ""},
    {"chat.messages", "messages"},
    {"chat: ", "messages: "},
    {"text: ", "prompt: "},
    {"token_ids", "prompt"},
    {"max_new_tokens: ", "max_tokens: "},
    {"prompt and max_new_tokens: ", "max_tokens: prompt and answer have "},
    {"attention: ", "lowkey.attention."},
    {"attention.", "lowkey.attention."},
    {"prefix_marks", "lowkey.prefix_marks"},
    {"draft: ", "lowkey.draft: "},
};

}  // namespace

absl::Status WithApiNames(const absl::Status& status) {
  const std::string message(status.message());
  for (const Renamed& renamed : kRenamed) {
    const std::string begin(renamed.begin);
    if (!absl::StartsWith(message, begin)) continue;
    absl::Status named(status.code(),
                       absl::StrCat(std::string(renamed.name), message.substr(begin.size())));
    status.ForEachPayload([&named](absl::string_view type, const absl::Cord& payload) {
      named.SetPayload(type, payload);
    });
    return named;
  }
  return status;
}

}  // namespace lowkey
