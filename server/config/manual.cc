#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/help.h"
#include "server/config/installed_texts.h"

namespace lowkey {
namespace {

// Text that roff shows as it is: no escapes, no minus that becomes a hyphen, no line that begins
// like a macro.
std::string Roff(std::string_view text) {
  std::string escaped = absl::StrReplaceAll(
      std::string(text),
      {{"\\", "\\e"}, {"-", "\\-"}, {"~", "\\(ti"}, {"^", "\\(ha"}, {"`", "\\(ga"}, {"\n", " "}});
  if (escaped.starts_with('.') || escaped.starts_with('\'')) escaped.insert(0, "\\&");
  return escaped;
}

std::string FlagParagraph(const Flag& flag) {
  std::string head = absl::StrCat("\\fB", Roff(absl::StrCat("--", std::string(flag.name))), "\\fR");
  if (!flag.value_name.empty()) absl::StrAppend(&head, " \\fI", Roff(flag.value_name), "\\fR");
  return absl::StrCat(".TP\n", head, "\n", Roff(FlagText(flag)), "\n");
}

std::string CommandSection(const CommandSpec& spec) {
  std::string text =
      absl::StrCat(".SS \"lowkey ", std::string(spec.name), spec.groups.empty() ? "" : " [flags]",
                   spec.positional.empty() ? "" : " ", Roff(spec.positional), "\"\n",
                   Roff(spec.description), "\n");
  for (const FlagGroup& group : spec.groups) {
    absl::StrAppend(&text, ".P\n", Roff(group.title), ":\n");
    for (const Flag& flag : group.flags) absl::StrAppend(&text, FlagParagraph(flag));
  }
  absl::StrAppend(&text, ".P\nExamples:\n.P\n.EX\n");
  for (std::string_view example : spec.examples) absl::StrAppend(&text, "  ", Roff(example), "\n");
  return absl::StrCat(text, ".EE\n");
}

}  // namespace

std::string ManualPage(const std::vector<Command>& commands, const std::string& version) {
  std::string text = absl::StrCat(
      ".TH LOWKEY 1 \"\" \"lowkey ", version,
      "\" \"User Commands\"\n"
      ".nh\n.ad l\n"
      ".SH NAME\nlowkey \\- serve language models, with attention chosen per request\n"
      ".SH SYNOPSIS\n.B lowkey\n.I COMMAND\n[\\fIflags\\fR]\n"
      ".SH DESCRIPTION\nlowkey serves language models over gRPC. Each request chooses how "
      "attention is computed: exactly, or at low rank through principal keys, or by another "
      "mechanism that the model has.\n.P\n",
      Roff(kFlagSourcesText), "\n.SH COMMANDS\n");
  for (const Command& command : commands) absl::StrAppend(&text, CommandSection(command.spec));
  absl::StrAppend(
      &text,
      ".SH ENVIRONMENT\n"
      ".TP\nLOWKEY_\\fIFLAG\\fR\nA flag's value, such as LOWKEY_MAX_NEW_TOKENS.\n"
      ".TP\nLOWKEY_TOKEN\nThe token that clients show to a server.\n"
      ".TP\nLOWKEY_ISA\nThe instruction set to compute with; lowkey version lists those there "
      "are.\n"
      ".TP\nNO_COLOR\nSet to anything, output has no colors.\n"
      ".SH FILES\n.TP\n$XDG_STATE_HOME/lowkey/history\nThe lines typed into `lowkey chat`; "
      "without XDG_STATE_HOME in ~/.local/state.\n"
      ".SH EXIT STATUS\n0 on success, 2 after a usage error, 130 when interrupted, 1 after any "
      "other error.\n");
  return text;
}

}  // namespace lowkey
