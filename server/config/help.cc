#include "server/config/help.h"

#include "absl/strings/str_cat.h"
#include "server/config/terminal/layout.h"

namespace lowkey {
namespace {

std::vector<Entry> FlagEntries(absl::Span<const Flag> flags) {
  std::vector<Entry> entries;
  for (const Flag& flag : flags) {
    entries.push_back({absl::StrCat("  ", FlagHead(flag)), FlagText(flag)});
  }
  return entries;
}

size_t FlagWidth(const CommandSpec& spec, size_t columns) {
  size_t width = 0;
  for (const FlagGroup& group : spec.groups) {
    width = std::max(width, HeadWidth(FlagEntries(group.flags), columns));
  }
  return width;
}

}  // namespace

const char kFlagSourcesText[] =
    "Defaults are in [brackets]. Every flag can also come from the environment (--max-new-tokens "
    "as LOWKEY_MAX_NEW_TOKENS) or from a config file of `flag = value` lines (--config); the "
    "command line wins, then the environment, then the file.";

std::string FlagHead(const Flag& flag) {
  std::string head = absl::StrCat("--", std::string(flag.name));
  if (!flag.value_name.empty()) absl::StrAppend(&head, " ", std::string(flag.value_name));
  return head;
}

std::string FlagText(const Flag& flag) {
  std::string text(flag.help);
  if (!flag.default_value.empty()) {
    absl::StrAppend(&text, " [", std::string(flag.default_value), "]");
  }
  if (flag.kind == FlagKind::kRepeated) text += "; may be repeated";
  return text;
}

std::string MainHelpText(const std::vector<Command>& commands, size_t columns) {
  std::vector<Entry> entries;
  for (const Command& command : commands) {
    entries.push_back(
        {absl::StrCat("  ", std::string(command.spec.name)), std::string(command.spec.summary)});
  }
  return absl::StrCat(
      Wrapped("lowkey serves language models, with attention chosen per request: exact, or "
              "low-rank through principal keys.",
              0, columns),
      "\n\nUsage: lowkey COMMAND [flags]\n\nCommands:\n",
      EntryLines(entries, HeadWidth(entries, columns), columns), "\nExamples:\n",
      WrappedCommand("lowkey serve", columns), "\n",
      WrappedCommand("lowkey generate \"Once upon a time\"", columns), "\n",
      WrappedCommand("lowkey generate --attention atp --rank 1/4 \"Once upon a time\"", columns),
      "\n\n", Wrapped("`lowkey COMMAND --help` explains a command's flags.", 0, columns), "\n");
}

std::string HelpText(const CommandSpec& spec, size_t columns) {
  std::string text = absl::StrCat("Usage: lowkey ", std::string(spec.name));
  if (!spec.groups.empty()) text += " [flags]";
  if (!spec.positional.empty()) absl::StrAppend(&text, " ", std::string(spec.positional));
  absl::StrAppend(&text, "\n\n", Wrapped(spec.description, 0, columns), "\n");
  const size_t width = FlagWidth(spec, columns);
  for (const FlagGroup& group : spec.groups) {
    absl::StrAppend(&text, "\n", Wrapped(absl::StrCat(std::string(group.title), ":"), 0, columns),
                    "\n", EntryLines(FlagEntries(group.flags), width, columns));
  }
  absl::StrAppend(&text, "\nExamples:\n");
  for (std::string_view example : spec.examples) {
    absl::StrAppend(&text, WrappedCommand(example, columns), "\n");
  }
  if (!spec.groups.empty())
    absl::StrAppend(&text, "\n", Wrapped(kFlagSourcesText, 0, columns), "\n");
  return text;
}

}  // namespace lowkey
