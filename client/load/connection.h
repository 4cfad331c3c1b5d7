#ifndef LOWKEY_CLIENT_LOAD_CONNECTION_H_
#define LOWKEY_CLIENT_LOAD_CONNECTION_H_

#include <poll.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/channel.h"

struct ssl_ctx_st;
struct ssl_st;

namespace lowkey {

// A connection to a server that never blocks, in clear or under TLS. Is used by one thread at a
// time.
class LoadConnection {
 public:
  // Takes a socket that is connected or begins to be, and OpenSSL's state on it; null: in clear.
  LoadConnection(int socket, ssl_st* ssl) : socket_(socket), ssl_(ssl) {}
  ~LoadConnection();
  LoadConnection(const LoadConnection&) = delete;
  LoadConnection& operator=(const LoadConnection&) = delete;

  // Move bytes and return how many; 0: try again when poll reports what Wanted asks for.
  // UNAVAILABLE: the connection is over. After a Write of 0 the next one must begin with the same
  // bytes.
  absl::StatusOr<size_t> Write(std::string_view bytes);
  absl::StatusOr<size_t> Read(char* data, size_t n_bytes);

  pollfd Wanted() const;

  // Whether the server waits for another request; it must have answered the last one.
  bool TakesAnother();

 private:
  // Returns what a call of OpenSSL's that returned `result` means.
  absl::StatusOr<size_t> ResultOf(int result, size_t n_bytes);
  absl::Status TlsFailure() const;

  const int socket_;
  ssl_st* const ssl_;
  bool wants_to_write_ = true;
};

// Makes connections to one address.
class Connector {
 public:
  // UNAVAILABLE if the address has no host of that name; INVALID_ARGUMENT for certificates or a key
  // that OpenSSL refuses. With TLS the server's certificate must be the authority's and name the
  // host.
  static absl::StatusOr<std::unique_ptr<Connector>> Make(const ConnectOptions& options);

  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Begins a connection. Null: the system refuses, and errno says why.
  std::unique_ptr<LoadConnection> Open() const;

 private:
  Connector(std::string host, ssl_ctx_st* tls) : host_(std::move(host)), tls_(tls) {}

  absl::Status Resolve(const std::string& port);
  // OpenSSL's state for a connection; null: there is no memory for it.
  ssl_st* MakeTls(int socket) const;

  const std::string host_;
  ssl_ctx_st* const tls_;  // null: in clear
  std::string address_;    // a sockaddr
  int family_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_CONNECTION_H_
