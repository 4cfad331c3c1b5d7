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
  CommandSpec spec;
  absl::Status (*run)(const FlagValues& flags) = nullptr;
};

// Runs `lowkey ARGUMENTS`: finds the command, parses its flags, reports its error. Returns the exit
// code.
int RunCommandLine(const std::vector<Command>& commands, const std::vector<std::string>& arguments,
                   const FlagSources& sources);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_COMMAND_H_
