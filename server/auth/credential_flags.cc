#include "server/auth/credential_flags.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/auth/watched_files.h"

namespace lowkey {
namespace {

constexpr Flag kCredentialFlags[] = {
    {"tls-cert", "FILE", "", "serve over TLS with this certificate (chain), PEM"},
    {"tls-key", "FILE", "", "and its key"},
    {"tls-client-ca", "FILE", "", "clients need a certificate that one of these signed, PEM"},
    {"tokens", "FILE", "", "calls need one of these tokens (docs/security.md)"},
    {"insecure", "", "", "allow addresses that other machines can reach, guarded or not",
     FlagKind::kSwitch},
};

}  // namespace

absl::Span<const Flag> CredentialFlags() { return kCredentialFlags; }

absl::StatusOr<std::optional<TlsPaths>> ReadOwnCertificate(const FlagValues& flags) {
  if (!flags.IsGiven("tls-cert") && !flags.IsGiven("tls-key")) return std::nullopt;
  for (const char* name : {"tls-cert", "tls-key"}) {
    if (!flags.IsGiven(name)) return flags.Error(name, "a file, as its other half is given");
  }
  return TlsPaths{flags.Text("tls-cert"), flags.Text("tls-key")};
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
    LK_ASSIGN_OR_RETURN(credentials.tokens,
                        Prefixed("--tokens", OpenTokens(flags.Text("tokens"), log)));
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
