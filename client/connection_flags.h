#ifndef LOWKEY_CLIENT_CONNECTION_FLAGS_H_
#define LOWKEY_CLIENT_CONNECTION_FLAGS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/channel.h"
#include "server/config/flags.h"

namespace lowkey {

// Returns the flags that say which server to ask, who asks, and whom to trust: --server, --tls-ca, ...
absl::Span<const Flag> ClientFlags();

// The server to ask, and what to show it: the token is --token-file's, else that of the environment
// variable LOWKEY_TOKEN. INVALID_ARGUMENT naming the flag; the errors of the files; those of
// CheckToken, unless --insecure is said.
absl::StatusOr<ConnectOptions> ReadConnection(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CONNECTION_FLAGS_H_
