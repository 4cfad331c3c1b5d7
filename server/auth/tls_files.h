#ifndef LOWKEY_SERVER_AUTH_TLS_FILES_H_
#define LOWKEY_SERVER_AUTH_TLS_FILES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct ssl_ctx_st;

namespace lowkey {

inline constexpr size_t kMaxPemBytes = size_t{1} << 20;

// The paths of one side's certificates, all in PEM.
struct TlsPaths {
  std::string certificate;  // the side's own, then those between it and the authority
  std::string key;          // without a pass phrase
  // The authority of the other side's certificates. Absent on a server: clients need none.
  std::optional<std::string> authority = {};
};

// The contents of those files.
struct TlsFiles {
  bool operator==(const TlsFiles&) const = default;

  std::string certificate, key;
  std::optional<std::string> authority;
  absl::Time certificate_end = absl::InfiniteFuture();  // of the side's own; set by ReadTlsFiles
};

// Reads the files and tries them as a TLS server would use them. Messages begin with the flag that
// named the file (--tls-cert, --tls-key, --tls-client-ca) and its path. ReadWholeFile's errors;
// INVALID_ARGUMENT if the file is no such PEM, is outside of its time, is weaker than this
// machine's policy allows, or if the key is not the certificate's.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths);

// Gives a server's OpenSSL context the certificates and the key, and has it ask for clients'
// certificates if there is an authority. Messages begin with the file's name of `names`. Errors are
// those of ReadTlsFiles for what was read.
absl::Status UseTlsFiles(const TlsPaths& names, const TlsFiles& files, ssl_ctx_st* context);

// Has an OpenSSL context trust the other side's certificate only if one of the authorities has
// signed it. INVALID_ARGUMENT, beginning with `name`, if `pem` has none that can be used.
absl::Status UseTlsAuthority(const std::string& name, const std::string& pem, ssl_ctx_st* context);

// Reads a file of one or more authorities' certificates. ReadWholeFile's errors; INVALID_ARGUMENT,
// beginning with the path, if it has none.
absl::StatusOr<std::string> ReadAuthority(const std::string& path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_TLS_FILES_H_
