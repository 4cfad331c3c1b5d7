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

// The credentials that guard a server. The files are read again whenever they change; the last good
// contents stay in force while new ones are unusable.
struct Credentials {
  std::shared_ptr<TokenSource> tokens;   // null: no call needs a token
  std::shared_ptr<TlsSource> tls;        // null: connections are in clear
  bool has_client_certificates = false;  // tls asks for them

  // Reads the files again at once. The ReloadLog gets one line for the tokens and one for the
  // certificates, if there are any.
  void ReadAgain() const {
    if (tokens != nullptr) tokens->ReadAgain();
    if (tls != nullptr) tls->ReadAgain();
  }

  // Returns whether nobody can call or listen in without a secret.
  bool IsGuarded() const {
    return tls != nullptr && (tokens != nullptr || has_client_certificates);
  }
};

// Receives one line for the log when a file has changed: its contents in short, or the error.
using ReloadLog = std::function<void(const std::string& line)>;

// Errors are those of ReadWholeFile and TokenTable::Parse.
absl::StatusOr<std::shared_ptr<TokenSource>> OpenTokens(const std::string& path, ReloadLog log);

// Errors are those of ReadTlsFiles.
absl::StatusOr<std::shared_ptr<TlsSource>> OpenTls(const TlsPaths& paths, ReloadLog log);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_CREDENTIALS_H_
