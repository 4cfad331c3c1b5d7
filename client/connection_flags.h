#ifndef LOWKEY_CLIENT_CONNECTION_FLAGS_H_
#define LOWKEY_CLIENT_CONNECTION_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/channel.h"
#include "server/config/flags.h"

namespace lowkey {

// Returns the flags that name the server and its credentials: --server, --tls-ca, ...
absl::Span<const Flag> ClientFlags();

// Reads the server's address and the credentials for it; the token comes from --token-file, else
// from the environment variable LOWKEY_TOKEN. INVALID_ARGUMENT names the flag; errors of the files;
// CheckToken's, unless --insecure is given.
absl::StatusOr<ConnectOptions> ReadConnection(const FlagValues& flags);

// Returns `options` with another address, HOST[:PORT], or CheckToken's error, unless --insecure is
// given. (Reading twice would find standard input, where a token may come from, at its end.)
absl::StatusOr<ConnectOptions> WithAddress(const FlagValues& flags, ConnectOptions options,
                                           const std::string& address);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CONNECTION_FLAGS_H_
