#ifndef LOWKEY_SERVER_CONFIG_HELP_H_
#define LOWKEY_SERVER_CONFIG_HELP_H_

#include <string>
#include <vector>

#include "server/config/command.h"
#include "server/config/flags.h"

namespace lowkey {

// Help is as wide as the terminal, within these bounds.
inline constexpr size_t kMinHelpColumns = 40;
inline constexpr size_t kHelpColumns = 80;

// Returns "--port N".
std::string FlagHead(const Flag& flag);
// Returns what the flag does, its default in brackets, and whether it may be repeated.
std::string FlagText(const Flag& flag);

// Returns the text of `lowkey --help`: the commands.
std::string MainHelpText(const std::vector<Command>& commands, size_t columns = kHelpColumns);

// Returns the text of `lowkey CMD --help`: usage, description, flags with defaults, examples.
std::string HelpText(const CommandSpec& spec, size_t columns = kHelpColumns);

// The sentences of help and manual about the sources of flags.
extern const char kFlagSourcesText[];

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_HELP_H_
