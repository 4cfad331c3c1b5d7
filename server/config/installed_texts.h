#ifndef LOWKEY_SERVER_CONFIG_INSTALLED_TEXTS_H_
#define LOWKEY_SERVER_CONFIG_INSTALLED_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/command.h"

namespace lowkey {

// Texts that are installed beside the program, made from its commands and flags.

// Returns a script that teaches `shell` to complete commands, flags, flags' values and files.
// INVALID_ARGUMENT unless it is "bash", "zsh" or "fish".
absl::StatusOr<std::string> CompletionScript(const std::string& shell,
                                             const std::vector<Command>& commands);

// Returns the manual page lowkey(1) of this version, in man's macros: every command with its flags
// and examples.
std::string ManualPage(const std::vector<Command>& commands, const std::string& version);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_INSTALLED_TEXTS_H_
