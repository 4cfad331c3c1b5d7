#include "server/config/command.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/retry_after.h"
#include "engine/kernels/isa.h"
#include "server/config/help.h"
#include "server/config/suggestions.h"
#include "server/config/terminal/terminal.h"
#include "server/config/variables.h"

namespace lowkey {
namespace {

constexpr int kUsageError = 2;
constexpr int kInterrupted = 130;

size_t HelpColumns() {
  return std::clamp(TerminalColumns(stdout).value_or(kHelpColumns), kMinHelpColumns, kHelpColumns);
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (absl::IsInvalidArgument(status)) return kUsageError;
  return absl::IsCancelled(status) ? kInterrupted : 1;
}

int Fail(const std::string& who, const absl::Status& status) {
  std::fflush(stdout);
  std::string message(status.message());
  if (const auto delay = RetryAfterOf(status); delay.has_value()) {
    absl::StrAppend(&message, "; try again in ", absl::FormatDuration(*delay));
  }
  std::fprintf(stderr, "%s: %s\n", who.c_str(), message.c_str());
  return ExitCode(status);
}

const Command* FindCommand(const std::vector<Command>& commands, const std::string& name) {
  const auto it = std::find_if(commands.begin(), commands.end(),
                               [&](const Command& command) { return command.spec.name == name; });
  return it == commands.end() ? nullptr : &*it;
}

int FailUnknownCommand(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) names.push_back(command.spec.name);
  return Fail("lowkey",
              absl::InvalidArgumentError(absl::StrCat("unknown command \"", name, "\"",
                                                      DidYouMean(NearestCommand(name, names), ""),
                                                      " (`lowkey --help` lists the commands)")));
}

std::vector<std::string_view> FlagNames(absl::Span<const Command> commands) {
  std::vector<std::string_view> names;
  for (const Command& command : commands) {
    for (const FlagGroup& group : command.spec.groups) {
      for (const Flag& flag : group.flags) names.push_back(flag.name);
    }
  }
  return names;
}

// Says which variables of the environment look like flags but are none. Commands without flags read
// no variables.
void WarnOfVariables(const Command& command, const std::string& who,
                     absl::Span<const std::string_view> known_flags, const FlagSources& sources) {
  if (command.spec.groups.empty()) return;
  for (const std::string& line :
       UnknownVariables(sources.variables, FlagNames({&command, 1}), known_flags)) {
    std::fprintf(stderr, "%s: warning: %s\n", who.c_str(), TerminalSafe(line).c_str());
  }
}

// Runs the command. An exception (no memory left, above all) becomes its error.
absl::Status RunGuarded(const Command& command, const FlagValues& flags) {
  try {
    return command.run(flags);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory left");
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("exception: ", e.what()));
  }
}

}  // namespace

int RunCommandLine(const std::vector<Command>& commands, const std::vector<std::string>& arguments,
                   const FlagSources& sources) {
  if (arguments.empty()) {
    std::fputs(MainHelpText(commands, HelpColumns()).c_str(), stderr);
    return kUsageError;
  }
  std::string name = arguments[0];
  if (name == "help" && arguments.size() == 2 && FindCommand(commands, arguments[1]) != nullptr) {
    return RunCommandLine(commands, {arguments[1], "--help"}, sources);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(MainHelpText(commands, HelpColumns()).c_str(), stdout);
    return 0;
  }
  if (name == "--version") name = "version";
  const Command* command = FindCommand(commands, name);
  if (command == nullptr) return FailUnknownCommand(commands, name);
  const std::string who = absl::StrCat("lowkey ", name);
  const std::vector<std::string_view> known_flags = FlagNames(commands);
  const absl::StatusOr<FlagValues> flags =
      ParseFlags(command->spec, absl::MakeSpan(arguments).subspan(1), known_flags, sources);
  if (!flags.ok() || !flags->wants_help()) WarnOfVariables(*command, who, known_flags, sources);
  if (!flags.ok()) {
    const int code = Fail(who, flags.status());
    std::fprintf(stderr, "`%s --help` lists its flags.\n", who.c_str());
    return code;
  }
  if (flags->wants_help()) {
    std::fputs(HelpText(command->spec, HelpColumns()).c_str(), stdout);
    return 0;
  }
  absl::Status status = CheckIsa();
  if (status.ok()) status = RunGuarded(*command, *flags);
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    status = absl::UnavailableError("standard output cannot be written");
  }
  return status.ok() ? 0 : Fail(who, status);
}

}  // namespace lowkey
