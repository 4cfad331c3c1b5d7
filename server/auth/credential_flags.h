#ifndef LOWKEY_SERVER_AUTH_CREDENTIAL_FLAGS_H_
#define LOWKEY_SERVER_AUTH_CREDENTIAL_FLAGS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/auth/credentials.h"
#include "server/auth/tls_files.h"
#include "server/config/flags.h"

namespace lowkey {

// Returns the flags for a server's credentials: --tls-cert, --tls-key, --tls-client-ca, --tokens.
absl::Span<const Flag> CredentialFlags();

// Reads --tls-cert and --tls-key, without an authority; nullopt when neither is given.
// INVALID_ARGUMENT when only one of them is.
absl::StatusOr<std::optional<TlsPaths>> ReadOwnCertificate(const FlagValues& flags);

// Reads a server's credentials and tries the files. Errors are those of OpenTls and OpenTokens, and
// INVALID_ARGUMENT for a flag that needs another one.
absl::StatusOr<Credentials> ReadCredentials(const FlagValues& flags, const ReloadLog& log);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_CREDENTIAL_FLAGS_H_
