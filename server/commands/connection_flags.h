#ifndef LOWKEY_SERVER_COMMANDS_CONNECTION_FLAGS_H_
#define LOWKEY_SERVER_COMMANDS_CONNECTION_FLAGS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/auth/credentials.h"
#include "server/config/flags.h"
#include "server/grpc/connection/channel.h"

namespace lowkey {

// The flags of both ends of a connection that say who they are and whom they trust.

absl::Span<const Flag> ClientFlags();      // --server --tls-ca ... --token-file
absl::Span<const Flag> CredentialFlags();  // serve: --tls-cert ... --tokens

// The server to ask, and what to show it: the token is --token-file's, else that of the environment
// variable LOWKEY_TOKEN. INVALID_ARGUMENT naming the flag; the errors of the files; those of
// CheckToken, unless --insecure is said.
absl::StatusOr<ConnectOptions> ReadConnection(const FlagValues& flags);

// What guards a server; the files are read and tried. Errors: those of OpenTls and OpenTokens,
// INVALID_ARGUMENT for a flag that needs another one.
absl::StatusOr<Credentials> ReadCredentials(const FlagValues& flags, const ReloadLog& log);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_COMMANDS_CONNECTION_FLAGS_H_
