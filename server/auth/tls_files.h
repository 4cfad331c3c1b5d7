#ifndef LOWKEY_SERVER_AUTH_TLS_FILES_H_
#define LOWKEY_SERVER_AUTH_TLS_FILES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lowkey {

inline constexpr size_t kMaxPemBytes = size_t{1} << 20;

// Where one side's certificates are, all in PEM.
struct TlsPaths {
  std::string certificate;  // its own, then those between it and the authority
  std::string key;          // without a pass phrase
  // Whose certificates the other side must have. On a server, absent: clients need none.
  std::optional<std::string> authority = {};
};

// What they hold.
struct TlsFiles {
  bool operator==(const TlsFiles&) const = default;

  std::string certificate, key;
  std::optional<std::string> authority;
};

// Reads and tries them as a TLS server would use them. NOT_FOUND when a file cannot be read;
// INVALID_ARGUMENT, naming the file, when it is no such PEM, is past its time or not yet in it, is
// weaker than this machine's policy allows, or when the key is not the certificate's.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths);

// A file of one or more certificates, of authorities. The same errors.
absl::StatusOr<std::string> ReadAuthority(const std::string& path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_TLS_FILES_H_
