#include "server/all_commands.h"

#include "client/commands.h"
#include "server/commands.h"
#include "tools/commands.h"

namespace lowkey {

std::vector<Command> AllCommands() {
  return {ServeCommand(),   GenerateCommand(),  ChatCommand(),   BenchCommand(),
          InspectCommand(), TokenizeCommand(),  LogitsCommand(), AttendCommand(),
          EvalCommand(),    CrossoverCommand(), HealthCommand(), VersionCommand()};
}

}  // namespace lowkey
