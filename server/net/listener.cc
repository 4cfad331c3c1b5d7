#include "server/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "server/net/listening.h"
#include "server/net/owned_socket.h"
#include "server/net/peer.h"
#include "server/net/reactor.h"

namespace lowkey {
namespace {

using boost::system::error_code;

// Under a flood each wake comes a round of all connections later.
constexpr int kAcceptsPerWake = 128;
constexpr std::chrono::milliseconds kPause{50};
constexpr int kUnackedMilliseconds = 30'000;
// What the kernel holds for a reader that has stopped, else 4 MiB.
constexpr int kSendBytes = 128 << 10;
constexpr int kUnsentBytes = 32 << 10;

OwnedSocket OpenReserve() { return OwnedSocket(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void Set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

void SetUp(int socket) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnackedMilliseconds);
  Set(socket, SOL_SOCKET, SO_SNDBUF, kSendBytes);
  Set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
}

// Accepts on one socket, on the loop's thread. The callbacks that Asio owes share this object.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(EventLoop& loop, const Listener::OnAccept& on_accept, const OnRefusal& on_refusal)
      : on_accept_(on_accept),
        on_refusal_(on_refusal),
        reserve_(OpenReserve()),
        descriptor_(loop.reactor().context),
        pause_(loop.reactor().context) {}

  // Takes a socket that listens.
  absl::Status Start(OwnedSocket socket) {
    error_code error;
    descriptor_.assign(socket.get(), error);
    if (error) return absl::FailedPreconditionError(error.message());
    socket.Release();
    AwaitConnection();
    return absl::OkStatus();
  }

  void Close() {
    is_closed_ = true;
    on_accept_ = nullptr;
    error_code ignored;
    descriptor_.close(ignored);
    pause_.cancel();
  }

  bool can_accept() const { return can_accept_; }

 private:
  enum class Accepted { kOne, kNone, kAborted, kNoRoom };

  void AwaitConnection() {
    RunInTheEnd([this] {
      descriptor_.async_wait(
          boost::asio::posix::descriptor_base::wait_read,
          [self = shared_from_this()](const error_code&) { self->AcceptSome(); });
    });
  }

  void AcceptSome() {
    if (is_closed_) return;
    for (int i = 0; i < kAcceptsPerWake; ++i) {
      switch (AcceptOne()) {
        case Accepted::kOne:
        case Accepted::kAborted:
          break;
        case Accepted::kNone:
          return AwaitConnection();
        case Accepted::kNoRoom:
          RefuseOne();
          return Pause();
      }
    }
    AwaitConnection();
  }

  Accepted AcceptOne() {
    sockaddr_storage address = {};
    socklen_t n_bytes = sizeof(address);
    OwnedSocket socket(accept4(descriptor_.native_handle(), reinterpret_cast<sockaddr*>(&address),
                               &n_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return ErrorOf(errno);
    can_accept_ = true;
    SetUp(socket.get());
    RunContained([&] {
      Peer peer = PeerOf(address);
      on_accept_(std::move(socket), std::move(peer));
    });
    return Accepted::kOne;
  }

  Accepted ErrorOf(int error) {
    switch (error) {
      case EAGAIN:
        // The kernel takes a descriptor before it looks for a connection: there is one.
        can_accept_ = true;
        return Accepted::kNone;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
      case EBADF:  // this one and those below are bugs of ours, which must not keep the loop busy
      case EINVAL:
      case ENOTSOCK:
        can_accept_ = false;
        return Accepted::kNoRoom;
      default:
        return Accepted::kAborted;  // an error of the connection that would have been next
    }
  }

  // Takes the descriptor that is kept in reserve, to end one connection that waits.
  void RefuseOne() {
    reserve_.Close();
    {
      const OwnedSocket socket(
          accept4(descriptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() >= 0) {
        const linger at_once = {1, 0};
        setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        RunContained([this] { on_refusal_(NetworkRefusal::kDescriptors); });
      }
    }
    reserve_ = OpenReserve();
  }

  void Pause() {
    pause_.expires_after(kPause);
    RunInTheEnd([this] {
      pause_.async_wait([self = shared_from_this()](const error_code&) {
        if (self->reserve_.get() < 0) self->reserve_ = OpenReserve();
        self->AcceptSome();
      });
    });
  }

  Listener::OnAccept on_accept_;
  const OnRefusal on_refusal_;
  OwnedSocket reserve_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer pause_;
  std::atomic<bool> can_accept_ = true;
  bool is_closed_ = false;
};

class SocketListener final : public Listener {
 public:
  SocketListener(EventLoop& loop, int port) : loop_(loop), port_(port) {}

  ~SocketListener() override { Close(); }

  void Close() override {
    bool is_closed = false;
    loop_.PostAndWait([&] {
      CloseAll();
      is_closed = true;
    });
    if (is_closed) return;
    loop_.Stop();  // it is stopping already, and takes no work any more
    CloseAll();
  }

  absl::Status Add(OwnedSocket socket, const OnAccept& on_accept, const OnRefusal& on_refusal) {
    acceptors_.push_back(std::make_shared<Acceptor>(loop_, on_accept, on_refusal));
    return acceptors_.back()->Start(std::move(socket));
  }

  int port() const override { return port_; }
  bool can_accept() const override {
    return std::all_of(acceptors_.begin(), acceptors_.end(),
                       [](const auto& acceptor) { return acceptor->can_accept(); });
  }

 private:
  void CloseAll() {
    for (const auto& acceptor : acceptors_) acceptor->Close();
  }

  EventLoop& loop_;
  const int port_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(EventLoop& loop, const std::string& host,
                                                          int port, OnAccept on_accept,
                                                          OnRefusal on_refusal) {
  LK_ASSIGN_OR_RETURN(std::vector<OwnedSocket> sockets, ListenAt(host, port));
  auto listener = std::make_unique<SocketListener>(loop, BoundPort(sockets.front()));
  absl::Status status = absl::FailedPreconditionError("the loop has ended");
  loop.PostAndWait([&] {
    absl::Status added = absl::OkStatus();
    for (OwnedSocket& socket : sockets) {
      added.Update(listener->Add(std::move(socket), on_accept, on_refusal));
    }
    status = added;
  });
  LK_RETURN_IF_ERROR(status);
  return listener;
}

int ConnectionsWithinLimits(int wanted) {
  constexpr rlim_t kForFiles = 64;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t left = limit.rlim_cur > kForFiles ? limit.rlim_cur - kForFiles : 1;
  return static_cast<int>(std::min<rlim_t>(left, wanted));
}

}  // namespace lowkey
