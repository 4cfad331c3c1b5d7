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
  std::string authority;             // PEM: who must have signed the server's certificate
  std::optional<TlsFiles> own = {};  // for servers that ask clients for a certificate
};

// How a client reaches its server, and what it shows there.
struct ConnectOptions {
  std::string address;                    // "HOST:PORT"
  std::optional<std::string> token = {};  // goes with every call
  std::optional<ClientTls> tls = {};      // absent: in clear
};

// FAILED_PRECONDITION when a token would travel in clear to another machine. INVALID_ARGUMENT when
// it is none.
absl::Status CheckToken(const ConnectOptions& options);

// Nothing is sent before the first call.
std::shared_ptr<grpc::Channel> OpenChannel(const ConnectOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CHANNEL_H_
