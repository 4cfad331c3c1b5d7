#ifndef LOWKEY_SERVER_CONFIG_VARIABLES_H_
#define LOWKEY_SERVER_CONFIG_VARIABLES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace lowkey {

// Returns a line for each of these environment variables that is called LOWKEY_ and something that
// nobody reads. The line names the flag that is probably meant: one of the command's if any is
// near, else one of `known_flags`, which are every command's.
std::vector<std::string> UnknownVariables(absl::Span<const std::string> variables,
                                          absl::Span<const std::string_view> command_flags,
                                          absl::Span<const std::string_view> known_flags);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_VARIABLES_H_
