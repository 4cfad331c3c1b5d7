#ifndef LOWKEY_SERVER_ALL_COMMANDS_H_
#define LOWKEY_SERVER_ALL_COMMANDS_H_

#include <vector>

#include "server/config/command.h"

namespace lowkey {

// Return the commands of the server itself: `lowkey serve`, `lowkey version`.
Command ServeCommand();
Command VersionCommand();

// Returns every command of the binary, in the order of `lowkey --help`.
std::vector<Command> AllCommands();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_ALL_COMMANDS_H_
