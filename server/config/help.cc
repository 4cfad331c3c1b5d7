#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/config/flags.h"

namespace lowkey {
namespace {

std::string FlagHead(const Flag& flag) {
  std::string head = absl::StrCat("  --", std::string(flag.name));
  if (!flag.value_name.empty()) absl::StrAppend(&head, " ", std::string(flag.value_name));
  return head;
}

size_t HeadWidth(const CommandSpec& spec) {
  size_t width = 0;
  for (const FlagGroup& group : spec.groups) {
    for (const Flag& flag : group.flags) width = std::max(width, FlagHead(flag).size());
  }
  return width;
}

void AppendFlag(const Flag& flag, size_t width, std::string& text) {
  std::string head = FlagHead(flag);
  head.resize(width + 2, ' ');
  absl::StrAppend(&text, head, std::string(flag.help));
  if (!flag.default_value.empty()) {
    absl::StrAppend(&text, " [", std::string(flag.default_value), "]");
  }
  if (flag.kind == FlagKind::kRepeated) absl::StrAppend(&text, "; may be repeated");
  absl::StrAppend(&text, "\n");
}

}  // namespace

std::string HelpText(const CommandSpec& spec) {
  std::string text = absl::StrCat("Usage: lowkey ", std::string(spec.name), " [flags]");
  if (!spec.positional.empty()) absl::StrAppend(&text, " ", std::string(spec.positional));
  absl::StrAppend(&text, "\n\n", std::string(spec.description), "\n");
  const size_t width = HeadWidth(spec);
  for (const FlagGroup& group : spec.groups) {
    absl::StrAppend(&text, "\n", std::string(group.title), ":\n");
    for (const Flag& flag : group.flags) AppendFlag(flag, width, text);
  }
  absl::StrAppend(&text, "\nExamples:\n");
  for (std::string_view example : spec.examples) {
    absl::StrAppend(&text, "  ", std::string(example), "\n");
  }
  if (!spec.groups.empty()) {
    absl::StrAppend(&text,
                    "\nDefaults are in [brackets]. Every flag can also come from the environment "
                    "(--max-new-tokens\nas LOWKEY_MAX_NEW_TOKENS) or from a config file of "
                    "`flag = value` lines (--config); the command\nline wins, then the "
                    "environment, then the file.\n");
  }
  return text;
}

}  // namespace lowkey
