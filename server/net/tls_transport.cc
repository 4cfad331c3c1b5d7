#include "server/net/tls_transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "server/net/ready_socket.h"

namespace lowkey {
namespace {

// Messages of TLS itself after the handshake, such as changes of keys, which honest clients send
// once in millions of records.
constexpr int kMaxLaterMessages = 1000;

struct SslFreer {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Ssl = std::unique_ptr<SSL, SslFreer>;

class TlsTransport final : public Transport {
 public:
  TlsTransport(EventLoop& loop, OwnedSocket socket, std::shared_ptr<const TlsContext> tls)
      : socket_(loop, std::move(socket)), tls_(std::move(tls)), ssl_(SSL_new(tls_->get())) {
    is_broken_ = ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket_.descriptor()) != 1;
    if (is_broken_) return;
    SSL_set_accept_state(ssl_.get());
    SSL_set_msg_callback(ssl_.get(), &CountMessage);
    SSL_set_msg_callback_arg(ssl_.get(), this);
  }

  IoState Handshake() override {
    const IoState state = Try(read_needs_, [this] { return SSL_do_handshake(ssl_.get()); });
    write_needs_ = state == IoState::kWait ? read_needs_ : Need::kWritable;
    is_open_ = state == IoState::kDone;
    return state == IoState::kEnd ? IoState::kFailure : state;
  }

  std::string_view protocol() const override {
    if (ssl_ == nullptr) return "";
    const unsigned char* name = nullptr;
    unsigned int n_bytes = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &n_bytes);
    return {reinterpret_cast<const char*>(name), n_bytes};
  }

  bool is_encrypted() const override { return true; }

  IoResult Read(char* data, size_t n_bytes) override {
    size_t n_read = 0;
    const IoState state =
        Try(read_needs_, [&] { return SSL_read_ex(ssl_.get(), data, n_bytes, &n_read); });
    if (n_later_messages_ > kMaxLaterMessages) is_broken_ = true;
    return {is_broken_ ? IoState::kFailure : state, n_read};
  }

  IoResult Write(std::string_view bytes) override {
    size_t n_written = 0;
    const IoState state = Try(write_needs_, [&] {
      return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n_written);
    });
    if (state != IoState::kWait) write_needs_ = Need::kWritable;
    // OpenSSL says so when a write fails after the other end's close_notify.
    return {state == IoState::kEnd ? IoState::kFailure : state, n_written};
  }

  void CloseWriting() override {
    if (!std::exchange(is_closing_, true)) SendClose();
  }

  void Abort() override { socket_.Abort(); }

  void Wait(bool for_reading, bool for_writing, std::function<void()> ready) override {
    const auto needs = [&](Need need) {
      return (for_reading && read_needs_ == need) || (for_writing && write_needs_ == need);
    };
    // What OpenSSL has taken from the socket already raises nothing there.
    const bool is_ready = is_broken_ || (for_reading && SSL_pending(ssl_.get()) > 0);
    socket_.Wait({.readable = needs(Need::kReadable),
                  .writable = needs(Need::kWritable),
                  .nothing = is_ready && (for_reading || for_writing)},
                 std::move(ready));
  }

 private:
  enum class Need { kReadable, kWritable };

  static void CountMessage(int is_sent, int, int type, const void*, size_t, SSL*, void* transport) {
    auto* const self = static_cast<TlsTransport*>(transport);
    if (is_sent == 0 && type == SSL3_RT_HANDSHAKE && self->is_open_) ++self->n_later_messages_;
  }

  // Makes one call of OpenSSL's, which returns more than 0 when it has done something. `need` is
  // changed when the call must be made again.
  template <typename Call>
  IoState Try(Need& need, const Call& call) {
    if (is_broken_) return IoState::kFailure;
    // SSL_get_error reads errors that any other connection may have left.
    ERR_clear_error();
    const int result = call();
    if (result > 0) return IoState::kDone;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        need = Need::kReadable;
        return IoState::kWait;
      case SSL_ERROR_WANT_WRITE:
        need = Need::kWritable;
        return IoState::kWait;
      case SSL_ERROR_ZERO_RETURN:
        return IoState::kEnd;
      default:
        is_broken_ = true;
        ERR_clear_error();
        return IoState::kFailure;
    }
  }

  // Sends close_notify, and FIN once the socket has taken it.
  void SendClose() {
    Need need = Need::kWritable;
    const IoState state = Try(need, [this] {
      const int result = SSL_shutdown(ssl_.get());
      return result == 0 ? 1 : result;  // 0: sent, and nothing came yet
    });
    if (state == IoState::kWait) {
      socket_.WaitToClose([this] { SendClose(); });
    } else {
      shutdown(socket_.descriptor(), SHUT_WR);
    }
  }

  ReadySocket socket_;
  const std::shared_ptr<const TlsContext> tls_;
  const Ssl ssl_;  // uses the socket, and ends before it
  Need read_needs_ = Need::kReadable, write_needs_ = Need::kWritable;
  int n_later_messages_ = 0;
  bool is_open_ = false;  // the handshake is over
  bool is_broken_ = false, is_closing_ = false;
};

}  // namespace

std::unique_ptr<Transport> MakeTlsTransport(EventLoop& loop, OwnedSocket socket,
                                            const std::shared_ptr<const TlsContext>& tls) {
  return std::make_unique<TlsTransport>(loop, std::move(socket), tls);
}

}  // namespace lowkey
