#include "client/connection_flags.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/auth/credential_flags.h"
#include "server/auth/tls_files.h"
#include "server/net/address.h"

namespace lowkey {
namespace {

constexpr size_t kMaxTokenFile = 4096;

constexpr Flag kClientFlags[] = {
    {"server", "HOST[:PORT]", "127.0.0.1:50051", "the server to ask; without a port: 50051"},
    {"token-file", "FILE", "", "the token to show it, or - [that of LOWKEY_TOKEN, if it is set]"},
    {"tls-ca", "FILE", "", "use TLS; who must have signed the server's certificate, PEM"},
    {"tls-cert", "FILE", "", "this client's certificate, PEM, for servers that ask for one"},
    {"tls-key", "FILE", "", "and its key"},
    {"insecure", "", "", "send a token without TLS to another machine", FlagKind::kSwitch},
};

absl::StatusOr<std::optional<std::string>> ReadToken(const FlagValues& flags) {
  std::string token;
  if (flags.IsGiven("token-file")) {
    LK_ASSIGN_OR_RETURN(token, ReadTextFile(flags.Text("token-file"), kMaxTokenFile));
  } else if (const char* variable = std::getenv("LOWKEY_TOKEN"); variable != nullptr) {
    token = variable;
  } else {
    return std::nullopt;
  }
  return std::string(absl::StripAsciiWhitespace(token));
}

}  // namespace

absl::Span<const Flag> ClientFlags() { return kClientFlags; }

absl::StatusOr<ConnectOptions> WithAddress(const FlagValues& flags, ConnectOptions options,
                                           const std::string& address) {
  options.address = WithPort(address);
  const absl::Status safe = CheckToken(options);
  if (absl::IsFailedPrecondition(safe) && flags.Switch("insecure")) return options;
  LK_RETURN_IF_ERROR(safe);
  return options;
}

absl::StatusOr<ConnectOptions> ReadConnection(const FlagValues& flags) {
  ConnectOptions options;
  LK_ASSIGN_OR_RETURN(const std::optional<TlsPaths> own, ReadOwnCertificate(flags));
  if (flags.IsGiven("tls-ca")) {
    LK_ASSIGN_OR_RETURN(options.tls.emplace().authority,
                        Prefixed("--tls-ca", ReadAuthority(flags.Text("tls-ca"))));
    if (own.has_value()) {
      LK_ASSIGN_OR_RETURN(options.tls->own, ReadTlsFiles(*own));
    }
  } else if (own.has_value()) {
    return flags.Error("tls-ca", "a file, as --tls-cert is given");
  }
  LK_ASSIGN_OR_RETURN(options.token, ReadToken(flags));
  return WithAddress(flags, std::move(options), flags.Text("server"));
}

}  // namespace lowkey
