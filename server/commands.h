#ifndef LOWKEY_SERVER_COMMANDS_H_
#define LOWKEY_SERVER_COMMANDS_H_

#include "server/config/command.h"

namespace lowkey {

// Return the commands of the server itself: `lowkey serve`, `lowkey version`.
Command ServeCommand();
Command VersionCommand();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_COMMANDS_H_
