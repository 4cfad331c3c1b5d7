#include "server/net/transport.h"

#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/net/ready_socket.h"
#include "server/net/tls_transport.h"

namespace lowkey {
namespace {

class ClearTransport final : public Transport {
 public:
  ClearTransport(EventLoop& loop, OwnedSocket socket) : socket_(loop, std::move(socket)) {}

  IoState Handshake() override {
    return socket_.descriptor() >= 0 ? IoState::kDone : IoState::kFailure;
  }
  std::string_view protocol() const override { return ""; }
  bool is_encrypted() const override { return false; }

  IoResult Read(char* data, size_t n_bytes) override {
    return ResultOf([&] { return recv(socket_.descriptor(), data, n_bytes, MSG_DONTWAIT); });
  }
  IoResult Write(std::string_view bytes) override {
    return ResultOf([&] {
      return send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }

  void CloseWriting() override { shutdown(socket_.descriptor(), SHUT_WR); }
  void Abort() override { socket_.Abort(); }

  void Wait(bool for_reading, bool for_writing, std::function<void()> ready) override {
    socket_.Wait({.readable = for_reading, .writable = for_writing}, std::move(ready));
  }

 private:
  template <typename Call>
  static IoResult ResultOf(const Call& call) {
    ssize_t n_bytes;
    do {
      n_bytes = call();
    } while (n_bytes < 0 && errno == EINTR);
    if (n_bytes > 0) return {IoState::kDone, static_cast<size_t>(n_bytes)};
    if (n_bytes == 0) return {IoState::kEnd};
    return {errno == EAGAIN || errno == EWOULDBLOCK ? IoState::kWait : IoState::kFailure};
  }

  ReadySocket socket_;
};

}  // namespace

std::unique_ptr<Transport> MakeTransport(EventLoop& loop, OwnedSocket socket,
                                         const std::shared_ptr<const TlsContext>& tls) {
  if (tls != nullptr) return MakeTlsTransport(loop, std::move(socket), tls);
  return std::make_unique<ClearTransport>(loop, std::move(socket));
}

}  // namespace lowkey
