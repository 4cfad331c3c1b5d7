#ifndef LOWKEY_CLIENT_CHANNEL_H_
#define LOWKEY_CLIENT_CHANNEL_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/auth/tls_files.h"

namespace grpc {
class Channel;
}

namespace lowkey {

struct ClientTls {
  std::string authority;             // PEM; must have signed the server's certificate
  std::optional<TlsFiles> own = {};  // if the server asks clients for a certificate
};

// The address of a server and the credentials that a client shows it.
struct ConnectOptions {
  std::string address;                    // "HOST:PORT"
  std::optional<std::string> token = {};  // sent with every call
  std::optional<ClientTls> tls = {};      // absent: calls go in clear
};

// FAILED_PRECONDITION if a token would travel in clear to another machine. INVALID_ARGUMENT if the
// token is malformed.
absl::Status CheckToken(const ConnectOptions& options);

// Returns a channel that sends nothing before the first call.
std::shared_ptr<grpc::Channel> OpenChannel(const ConnectOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CHANNEL_H_
