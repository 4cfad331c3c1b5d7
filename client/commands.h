#ifndef LOWKEY_CLIENT_COMMANDS_H_
#define LOWKEY_CLIENT_COMMANDS_H_

#include "server/config/command.h"

namespace lowkey {

// Return the commands that talk to a server.
Command GenerateCommand();
Command ChatCommand();
Command BenchCommand();
Command HealthCommand();

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_COMMANDS_H_
