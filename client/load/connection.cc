#include "client/load/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/auth/tls_files.h"
#include "server/net/address.h"

namespace lowkey {
namespace {

constexpr unsigned char kProtocol[] = "\x08http/1.1";

absl::Status Closed() { return absl::UnavailableError("the server closed the connection"); }

bool MustWait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS || errno == EINTR;
}

absl::Status SocketFailure() {
  return absl::UnavailableError(absl::StrCat("connection: ", std::strerror(errno)));
}

absl::Status UseFiles(const ClientTls& tls, SSL_CTX* context) {
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_alpn_protos(context, kProtocol, sizeof(kProtocol) - 1) != 0) {
    return absl::InvalidArgumentError("OpenSSL refuses TLS 1.2");
  }
  LK_RETURN_IF_ERROR(UseTlsAuthority("--tls-ca", tls.authority, context));
  if (!tls.own.has_value()) return absl::OkStatus();
  return UseTlsFiles({"--tls-cert", "--tls-key"}, *tls.own, context);
}

// Returns whether somebody listens at the address: a name may have several, such as ::1 and
// 127.0.0.1.
bool Answers(const addrinfo& address) {
  constexpr int kPatienceMs = 2000;
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const absl::Cleanup end = [socket] { close(socket); };
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wanted = {socket, POLLOUT, 0};
  int error = 0;
  socklen_t n_bytes = sizeof(error);
  return poll(&wanted, 1, kPatienceMs) == 1 &&
         getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &n_bytes) == 0 && error == 0;
}

}  // namespace

LoadConnection::~LoadConnection() {
  SSL_free(ssl_);
  close(socket_);
}

absl::Status LoadConnection::TlsFailure() const {
  const int saved_errno = errno;
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (const long verified = SSL_get_verify_result(ssl_); verified != X509_V_OK) {
    return absl::UnavailableError(
        absl::StrCat("the server's certificate: ", X509_verify_cert_error_string(verified)));
  }
  const char* const reason = error != 0 ? ERR_reason_error_string(error) : nullptr;
  if (reason != nullptr) return absl::UnavailableError(absl::StrCat("TLS: ", reason));
  if (saved_errno == 0) return Closed();
  return absl::UnavailableError(absl::StrCat("connection: ", std::strerror(saved_errno)));
}

absl::StatusOr<size_t> LoadConnection::ResultOf(int result, size_t n_bytes) {
  wants_to_write_ = false;
  if (result > 0) return n_bytes;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_WRITE:
      wants_to_write_ = true;
      return size_t{0};
    case SSL_ERROR_WANT_READ:
      return size_t{0};
    case SSL_ERROR_ZERO_RETURN:
      return Closed();
    default:
      return TlsFailure();
  }
}

absl::StatusOr<size_t> LoadConnection::Write(std::string_view bytes) {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    size_t n = 0;
    const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &n);
    return ResultOf(result, n);
  }
  const ssize_t n = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  wants_to_write_ = n < 0;
  if (n >= 0) return static_cast<size_t>(n);
  if (MustWait()) return size_t{0};
  return SocketFailure();
}

absl::StatusOr<size_t> LoadConnection::Read(char* data, size_t n_bytes) {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    size_t n = 0;
    const int result = SSL_read_ex(ssl_, data, n_bytes, &n);
    return ResultOf(result, n);
  }
  const ssize_t n = recv(socket_, data, n_bytes, 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) return Closed();
  if (MustWait()) return size_t{0};
  return SocketFailure();
}

pollfd LoadConnection::Wanted() const {
  return {socket_, static_cast<short>(wants_to_write_ ? POLLIN | POLLOUT : POLLIN), 0};
}

bool LoadConnection::TakesAnother() {
  char byte;
  wants_to_write_ = true;
  return recv(socket_, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

absl::StatusOr<std::unique_ptr<Connector>> Connector::Make(const ConnectOptions& options) {
  SSL_CTX* context = nullptr;
  if (options.tls.has_value()) {
    ERR_clear_error();
    context = SSL_CTX_new(TLS_client_method());
    if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  }
  std::unique_ptr<Connector> connector(
      new Connector(WithoutBrackets(HostOf(options.address)), context));
  if (context != nullptr) LK_RETURN_IF_ERROR(UseFiles(*options.tls, context));
  LK_RETURN_IF_ERROR(connector->Resolve(options.address.substr(options.address.rfind(':') + 1)));
  return connector;
}

Connector::~Connector() { SSL_CTX_free(tls_); }

absl::Status Connector::Resolve(const std::string& port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host_.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(host_, ": ", gai_strerror(error)));
  }
  const absl::Cleanup end = [found] { freeaddrinfo(found); };
  const addrinfo* taken = found;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (!Answers(*each)) continue;
    taken = each;
    break;
  }
  address_.assign(reinterpret_cast<const char*>(taken->ai_addr), taken->ai_addrlen);
  family_ = taken->ai_family;
  return absl::OkStatus();
}

ssl_st* Connector::MakeTls(int socket) const {
  SSL* const ssl = SSL_new(tls_);
  if (ssl == nullptr) return nullptr;
  // A certificate names hosts and addresses apart; only hosts are named in the handshake.
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host_.c_str()) == 1;
  const bool is_named = is_address || (SSL_set1_host(ssl, host_.c_str()) == 1 &&
                                       SSL_set_tlsext_host_name(ssl, host_.c_str()) == 1);
  if (is_named && SSL_set_fd(ssl, socket) == 1) {
    SSL_set_connect_state(ssl);
    return ssl;
  }
  SSL_free(ssl);
  return nullptr;
}

std::unique_ptr<LoadConnection> Connector::Open() const {
  const int socket = ::socket(family_, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return nullptr;
  ssl_st* const ssl = tls_ == nullptr ? nullptr : MakeTls(socket);
  if (tls_ != nullptr && ssl == nullptr) {
    close(socket);
    errno = ENOMEM;
    return nullptr;
  }
  auto connection = std::make_unique<LoadConnection>(socket, ssl);
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(socket, reinterpret_cast<const sockaddr*>(address_.data()),
              static_cast<socklen_t>(address_.size())) == 0 ||
      errno == EINPROGRESS) {
    return connection;
  }
  return nullptr;
}

}  // namespace lowkey
