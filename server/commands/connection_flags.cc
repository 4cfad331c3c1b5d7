#include "server/commands/connection_flags.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/auth/tls_files.h"
#include "server/auth/watched_files.h"
#include "server/commands/token_text.h"

namespace lowkey {
namespace {

constexpr size_t kMaxTokenFile = 4096;

constexpr Flag kClientFlags[] = {
    {"server", "HOST:PORT", "127.0.0.1:50051", "the server to ask"},
    {"token-file", "FILE", "", "the token to show it, or - [that of LOWKEY_TOKEN, if it is set]"},
    {"tls-ca", "FILE", "", "use TLS; who must have signed the server's certificate, PEM"},
    {"tls-cert", "FILE", "", "this client's certificate, PEM, for servers that ask for one"},
    {"tls-key", "FILE", "", "and its key"},
    {"insecure", "", "", "send a token without TLS to another machine", FlagKind::kSwitch},
};
constexpr Flag kCredentialFlags[] = {
    {"tls-cert", "FILE", "", "serve over TLS with this certificate (chain), PEM"},
    {"tls-key", "FILE", "", "and its key"},
    {"tls-client-ca", "FILE", "", "clients need a certificate that one of these signed, PEM"},
    {"tokens", "FILE", "", "calls need one of these tokens (docs/security.md)"},
    {"insecure", "", "", "allow addresses that other machines can reach, guarded or not",
     FlagKind::kSwitch},
};

// --tls-cert and --tls-key, without an authority; nullopt when neither is given.
absl::StatusOr<std::optional<TlsPaths>> ReadOwnCertificate(const FlagValues& flags) {
  if (!flags.IsGiven("tls-cert") && !flags.IsGiven("tls-key")) return std::nullopt;
  for (const char* name : {"tls-cert", "tls-key"}) {
    if (!flags.IsGiven(name)) return flags.Error(name, "a file, as its other half is given");
  }
  return TlsPaths{flags.Text("tls-cert"), flags.Text("tls-key")};
}

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
absl::Span<const Flag> CredentialFlags() { return kCredentialFlags; }

absl::StatusOr<ConnectOptions> ReadConnection(const FlagValues& flags) {
  ConnectOptions options{flags.Text("server")};
  LK_ASSIGN_OR_RETURN(const std::optional<TlsPaths> own, ReadOwnCertificate(flags));
  if (flags.IsGiven("tls-ca")) {
    LK_ASSIGN_OR_RETURN(options.tls.emplace().authority, ReadAuthority(flags.Text("tls-ca")));
    if (own.has_value()) {
      LK_ASSIGN_OR_RETURN(options.tls->own, ReadTlsFiles(*own));
    }
  } else if (own.has_value()) {
    return flags.Error("tls-ca", "a file, as --tls-cert is given");
  }
  LK_ASSIGN_OR_RETURN(options.token, ReadToken(flags));
  const absl::Status safe = CheckToken(options);
  if (absl::IsFailedPrecondition(safe) && flags.Switch("insecure")) return options;
  LK_RETURN_IF_ERROR(safe);
  return options;
}

absl::StatusOr<Credentials> ReadCredentials(const FlagValues& flags, const ReloadLog& log) {
  Credentials credentials;
  LK_ASSIGN_OR_RETURN(std::optional<TlsPaths> paths, ReadOwnCertificate(flags));
  if (flags.IsGiven("tls-client-ca")) {
    if (!paths.has_value()) return flags.Error("tls-cert", "a file, as --tls-client-ca is given");
    paths->authority = flags.Text("tls-client-ca");
    credentials.has_client_certificates = true;
  }
  if (paths.has_value()) {
    LK_ASSIGN_OR_RETURN(credentials.tls, OpenTls(*paths, log));
  }
  if (flags.IsGiven("tokens")) {
    LK_ASSIGN_OR_RETURN(credentials.tokens, OpenTokens(flags.Text("tokens"), log));
  }
  for (const char* name : {"tls-key", "tokens"}) {
    const std::string path = flags.Text(name);
    if (flags.IsGiven(name) && IsReadableByAll(path)) {
      log(absl::StrCat("warning: everyone on this machine can read ", path, " (chmod o-r)"));
    }
  }
  return credentials;
}

}  // namespace lowkey
