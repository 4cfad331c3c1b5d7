#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/config/help.h"
#include "server/config/installed_texts.h"

namespace lowkey {
namespace {

std::string Names(const std::vector<Command>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const Command& command) {
    absl::StrAppend(out, std::string(command.spec.name));
  });
}

std::vector<Flag> FlagsOf(const CommandSpec& spec) {
  std::vector<Flag> flags;
  for (const FlagGroup& group : spec.groups) {
    flags.insert(flags.end(), group.flags.begin(), group.flags.end());
  }
  flags.push_back({"help", "", "", "explain the flags", FlagKind::kSwitch});
  return flags;
}

std::string ChoicesOf(const Flag& flag) {
  return absl::StrReplaceAll(std::string(flag.choices), {{",", " "}});
}

// "bash|zsh|fish" as words; empty where the argument is none of a few words.
std::string PositionalChoices(const CommandSpec& spec) {
  const std::string text(spec.positional);
  return text.find('|') == std::string::npos ? "" : absl::StrReplaceAll(text, {{"|", " "}});
}

std::string SingleQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// What bash does after a flag that takes a value, and after which flags of which commands.
std::map<std::string, std::vector<std::string>> BashValues(const std::vector<Command>& commands) {
  std::map<std::string, std::vector<std::string>> patterns;
  for (const Command& command : commands) {
    for (const Flag& flag : FlagsOf(command.spec)) {
      if (flag.kind == FlagKind::kSwitch) continue;
      std::string action = "return";
      if (TakesPath(flag)) action = "compopt -o default 2>/dev/null; return";
      if (!flag.choices.empty()) action = absl::StrCat("words='", ChoicesOf(flag), "'");
      patterns[action].push_back(
          absl::StrCat(std::string(command.spec.name), ":--", std::string(flag.name)));
    }
  }
  return patterns;
}

std::string BashScript(const std::vector<Command>& commands) {
  std::string text = absl::StrCat(
      "# Completion of lowkey's command lines in bash, as `lowkey completion bash` writes it.\n"
      "_lowkey() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '",
      Names(commands),
      "' -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  # --flag=value comes as three words.\n"
      "  if [ \"$cur\" = = ]; then\n"
      "    cur=\n"
      "  elif [ \"$prev\" = = ]; then\n"
      "    prev=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]}:$prev in\n");
  for (const auto& [action, patterns] : BashValues(commands)) {
    absl::StrAppend(&text, "    ", absl::StrJoin(patterns, "|"), ") ", action, " ;;\n");
  }
  absl::StrAppend(&text, "    *)\n      case ${COMP_WORDS[1]} in\n");
  for (const Command& command : commands) {
    std::string words = PositionalChoices(command.spec);
    for (const Flag& flag : FlagsOf(command.spec)) {
      absl::StrAppend(&words, " --", std::string(flag.name));
    }
    absl::StrAppend(&text, "        ", std::string(command.spec.name), ") words='", words,
                    "' ;;\n");
  }
  absl::StrAppend(&text,
                  "      esac\n"
                  "      [[ $cur == -* ]] || compopt -o default 2>/dev/null ;;\n"
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                  "}\n"
                  "complete -F _lowkey lowkey\n");
  return text;
}

// A flag as zsh's _arguments takes it: '--port=[where to listen]:N:'.
std::string ZshArgument(const Flag& flag) {
  const std::string help = absl::StrReplaceAll(
      FlagText(flag), {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
  std::string text = flag.kind == FlagKind::kRepeated ? "*" : "";
  absl::StrAppend(&text, "--", std::string(flag.name));
  if (flag.kind == FlagKind::kSwitch) return SingleQuoted(absl::StrCat(text, "[", help, "]"));
  std::string values = TakesPath(flag) ? "_files" : "";
  if (!flag.choices.empty()) values = absl::StrCat("(", ChoicesOf(flag), ")");
  const std::string name = absl::StrReplaceAll(std::string(flag.value_name), {{":", "\\:"}});
  return SingleQuoted(absl::StrCat(text, "=[", help, "]:", name, ":", values));
}

std::string ZshScript(const std::vector<Command>& commands) {
  std::string text =
      "#compdef lowkey\n"
      "# Completion of lowkey's command lines in zsh, as `lowkey completion zsh` writes it.\n"
      "_lowkey() {\n"
      "  local -a commands=(\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    ",
                    SingleQuoted(absl::StrCat(std::string(command.spec.name), ":",
                                              std::string(command.spec.summary))),
                    "\n");
  }
  absl::StrAppend(&text,
                  "  )\n"
                  "  if (( CURRENT == 2 )); then\n"
                  "    _describe command commands\n"
                  "    return\n"
                  "  fi\n"
                  "  shift words\n"
                  "  (( CURRENT-- ))\n"
                  "  case $words[1] in\n");
  for (const Command& command : commands) {
    absl::StrAppend(&text, "    ", std::string(command.spec.name), ")\n      _arguments");
    for (const Flag& flag : FlagsOf(command.spec)) {
      absl::StrAppend(&text, " \\\n        ", ZshArgument(flag));
    }
    const std::string choices = PositionalChoices(command.spec);
    const std::string rest = choices.empty() ? "*: :_files" : absl::StrCat("1: :(", choices, ")");
    absl::StrAppend(&text, " \\\n        ", SingleQuoted(rest), " ;;\n");
  }
  absl::StrAppend(&text, "  esac\n}\n_lowkey \"$@\"\n");
  return text;
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishFlag(const Flag& flag) {
  std::string text = absl::StrCat(" -l ", std::string(flag.name));
  if (TakesPath(flag)) {
    text += " -r -F";
  } else if (flag.kind != FlagKind::kSwitch) {
    text += " -x";
  }
  if (!flag.choices.empty()) absl::StrAppend(&text, " -a ", FishQuoted(ChoicesOf(flag)));
  return absl::StrCat(text, " -d ", FishQuoted(FlagText(flag)), "\n");
}

std::string FishScript(const std::vector<Command>& commands) {
  std::string text =
      "# Completion of lowkey's command lines in fish, as `lowkey completion fish` writes it.\n"
      "complete -c lowkey -n __fish_use_subcommand -f\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "complete -c lowkey -n __fish_use_subcommand -a ",
                    std::string(command.spec.name), " -d ",
                    FishQuoted(std::string(command.spec.summary)), "\n");
  }
  for (const Command& command : commands) {
    const std::string begin = absl::StrCat("complete -c lowkey -n '__fish_seen_subcommand_from ",
                                           std::string(command.spec.name), "'");
    for (const Flag& flag : FlagsOf(command.spec)) absl::StrAppend(&text, begin, FishFlag(flag));
    const std::string choices = PositionalChoices(command.spec);
    if (!choices.empty()) absl::StrAppend(&text, begin, " -f -a ", FishQuoted(choices), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const std::string& shell,
                                             const std::vector<Command>& commands) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  if (shell == "fish") return FishScript(commands);
  return absl::InvalidArgumentError(
      absl::StrCat("shell: \"", shell, "\", expected bash, zsh or fish"));
}

}  // namespace lowkey
