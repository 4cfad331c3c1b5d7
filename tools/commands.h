#ifndef LOWKEY_TOOLS_COMMANDS_H_
#define LOWKEY_TOOLS_COMMANDS_H_

#include "server/config/command.h"

namespace lowkey {

// Return the commands that work on a model without a server.
Command InspectCommand();
Command TokenizeCommand();
Command LogitsCommand();
Command AttendCommand();
Command EvalCommand();
Command CrossoverCommand();
Command CalibrateCommand();
Command QuantizeCommand();

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_COMMANDS_H_
