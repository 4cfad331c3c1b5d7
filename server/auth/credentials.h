#ifndef LOWKEY_SERVER_AUTH_CREDENTIALS_H_
#define LOWKEY_SERVER_AUTH_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/auth/reloading.h"
#include "server/auth/tls_files.h"
#include "server/auth/token_table.h"

namespace lowkey {

using TokenSource = Reloading<TokenTable>;
using TlsSource = Reloading<TlsFiles>;

// What guards a server. Read again whenever the files change, and what was good stays in force when
// they are not.
struct Credentials {
  std::shared_ptr<TokenSource> tokens;   // null: no call needs one
  std::shared_ptr<TlsSource> tls;        // null: in clear
  bool has_client_certificates = false;  // tls asks for them

  // Whether nobody gets in, or listens, without something secret.
  bool IsGuarded() const {
    return tls != nullptr && (tokens != nullptr || has_client_certificates);
  }
};

// Gets one line for the log when a file has changed: what was read, or why it could not be.
using ReloadLog = std::function<void(const std::string& line)>;

// The errors of ReadSmallFile and TokenTable::Parse.
absl::StatusOr<std::shared_ptr<TokenSource>> OpenTokens(const std::string& path, ReloadLog log);

// The errors of ReadTlsFiles.
absl::StatusOr<std::shared_ptr<TlsSource>> OpenTls(const TlsPaths& paths, ReloadLog log);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_CREDENTIALS_H_
