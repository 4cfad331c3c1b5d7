#include "server/all_commands.h"

#include <cstdio>

#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "engine/base/status_macros.h"
#include "server/config/installed_texts.h"
#include "server/version.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

absl::Status RunCompletion(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const std::string script,
                      CompletionScript(absl::StrJoin(flags.positional(), " "), AllCommands()));
  std::fputs(script.c_str(), stdout);
  return absl::OkStatus();
}

Command CompletionCommand() {
  Command command("completion", "print a script that completes command lines in a shell",
                  RunCompletion);
  command.spec.positional = "bash|zsh|fish";
  command.spec.description =
      "Prints a script that teaches a shell to complete lowkey's commands, flags and values. "
      "`cmake --install` installs all three.";
  command.spec.examples = {
      "lowkey completion bash > ~/.local/share/bash-completion/completions/lowkey",
      "lowkey completion zsh > ~/.zfunc/_lowkey",
      "lowkey completion fish > ~/.config/fish/completions/lowkey.fish",
  };
  return command;
}

absl::Status RunMan(const FlagValues&) {
  std::fputs(ManualPage(AllCommands(), kVersion).c_str(), stdout);
  return absl::OkStatus();
}

Command ManCommand() {
  Command command("man", "print the manual page", RunMan);
  command.spec.description = "Prints the manual page lowkey(1). `cmake --install` installs it.";
  command.spec.examples = {"lowkey man | man -l -"};
  return command;
}

}  // namespace

std::vector<Command> AllCommands() {
  return {ServeCommand(),   GenerateCommand(),  ChatCommand(),       BenchCommand(),
          InspectCommand(), TokenizeCommand(),  LogitsCommand(),     AttendCommand(),
          EvalCommand(),    CrossoverCommand(), CalibrateCommand(),  QuantizeCommand(),
          HealthCommand(),  VersionCommand(),   CompletionCommand(), ManCommand()};
}

}  // namespace lowkey
