#ifndef LOWKEY_SERVER_CONFIG_COMMAND_H_
#define LOWKEY_SERVER_CONFIG_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/flags.h"

namespace lowkey {

// A subcommand holds its flags and its function. `run` writes results to standard output and all
// else to standard error. RunCommandLine prints the error that `run` returns and makes it the exit
// code: 2 for INVALID_ARGUMENT, 130 for CANCELLED (interrupted), 1 for the rest.
struct Command {
  using Run = absl::Status (*)(const FlagValues& flags);

  Command(std::string_view name, std::string_view summary, Run run) : run(run) {
    spec.name = name;
    spec.summary = summary;
  }

  CommandSpec spec;
  Run run;
};

// Runs `lowkey ARGUMENTS`: finds the command, parses its flags, reports its error. Returns the exit
// code.
int RunCommandLine(const std::vector<Command>& commands, const std::vector<std::string>& arguments,
                   const FlagSources& sources);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_COMMAND_H_
