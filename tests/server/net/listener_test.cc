#include "server/net/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/server/net/sockets.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ListenerTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& host, int port = 0) {
    return Listener::Start(
        *loop_, host, port,
        [this](OwnedSocket socket, Peer peer) {
          EXPECT_TRUE(loop_->IsThisThread());
          absl::MutexLock lock(&mutex_);
          accepted_.emplace_back(std::move(socket), std::move(peer));
        },
        [this](NetworkRefusal refusal) {
          EXPECT_EQ(refusal, NetworkRefusal::kDescriptors);
          ++n_refused_;
        });
  }

  // Waits until so many connections have been accepted.
  void AwaitAccepted(size_t n) {
    const auto are_there = [this, n]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return accepted_.size() >= n;
    };
    absl::MutexLock lock(&mutex_);
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&are_there), absl::Seconds(30)));
  }

  static int OptionOf(int socket, int level, int option) {
    int value = -1;
    socklen_t n_bytes = sizeof(value);
    getsockopt(socket, level, option, &value, &n_bytes);
    return value;
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Start();
  std::atomic<int> n_refused_ = 0;
  absl::Mutex mutex_;
  std::vector<std::pair<OwnedSocket, Peer>> accepted_;
};

TEST_F(ListenerTest, AcceptsOnThePortThatItPicked) {
  const auto listener = *Listen("127.0.0.1");
  EXPECT_GT(listener->port(), 0);
  const OwnedSocket client = MakeClientSocket();
  ASSERT_TRUE(Connect(client, listener->port()));
  AwaitAccepted(1);
  const auto& [socket, peer] = accepted_[0];
  EXPECT_THAT(peer.address, StartsWith("127.0.0.1:"));
  EXPECT_EQ(peer.network, "127.0.0.1");
  EXPECT_TRUE(peer.is_loopback);
  EXPECT_TRUE(listener->can_accept());
  EXPECT_NE(fcntl(socket.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(socket.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(OptionOf(socket.get(), IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(OptionOf(socket.get(), SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(OptionOf(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
  EXPECT_EQ(OptionOf(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT), 32 << 10);
  EXPECT_LE(OptionOf(socket.get(), SOL_SOCKET, SO_SNDBUF), 256 << 10);
}

TEST_F(ListenerTest, AcceptsManyConnections) {
  const auto listener = *Listen("127.0.0.1");
  std::vector<OwnedSocket> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(MakeClientSocket());
    ASSERT_TRUE(Connect(clients.back(), listener->port()));
  }
  AwaitAccepted(100);
}

TEST_F(ListenerTest, AcceptsIpv6WithAndWithoutBrackets) {
  for (const std::string host : {"[::1]", "::1", "[::]"}) {
    const auto listener = Listen(host);
    if (!listener.ok()) GTEST_SKIP() << "no IPv6: " << listener.status();
    const OwnedSocket client = MakeClientSocket(AF_INET6);
    ASSERT_TRUE(ConnectV6(client, (*listener)->port()));
    AwaitAccepted(1);
    EXPECT_THAT(accepted_[0].second.address, StartsWith("[::1]:"));
    EXPECT_EQ(accepted_[0].second.network, "::/64");
    EXPECT_TRUE(accepted_[0].second.is_loopback);
    accepted_.clear();
  }
}

TEST_F(ListenerTest, Ipv4WithinIpv6CountsAsIpv4) {
  const auto listener = Listen("::");
  if (!listener.ok()) GTEST_SKIP() << "no IPv6: " << listener.status();
  const OwnedSocket client = MakeClientSocket();
  ASSERT_TRUE(Connect(client, (*listener)->port()));
  AwaitAccepted(1);
  EXPECT_THAT(accepted_[0].second.address, StartsWith("127.0.0.1:"));
  EXPECT_EQ(accepted_[0].second.network, "127.0.0.1");
  EXPECT_TRUE(accepted_[0].second.is_loopback);
}

TEST_F(ListenerTest, LocalhostIsReachedByIpv4) {
  const auto listener = *Listen("localhost");
  const OwnedSocket client = MakeClientSocket();
  EXPECT_TRUE(Connect(client, listener->port()));
}

TEST_F(ListenerTest, PortInUseIsRefused) {
  const auto listener = *Listen("127.0.0.1");
  const absl::Status status = Listen("127.0.0.1", listener->port()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
}

TEST_F(ListenerTest, BadHostsAreRefused) {
  EXPECT_EQ(Listen("no host").status().code(), absl::StatusCode::kInvalidArgument);
  // An address of documentation, which no machine has.
  EXPECT_EQ(Listen("192.0.2.1").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ListenerTest, EndClosesThePort) {
  auto listener = *Listen("127.0.0.1");
  const int port = listener->port();
  listener.reset();
  EXPECT_FALSE(Connect(MakeClientSocket(), port));
  EXPECT_TRUE(Listen("127.0.0.1", port).ok());
}

TEST_F(ListenerTest, MayEndAfterTheLoop) {
  auto listener = *Listen("127.0.0.1");
  loop_->Stop();
  const int port = listener->port();
  listener.reset();
  EXPECT_FALSE(Connect(MakeClientSocket(), port));
  EXPECT_EQ(Listen("127.0.0.1").status().code(), absl::StatusCode::kFailedPrecondition);
}

// Leaves the process without a free descriptor for as long as it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &low);
    for (;;) {
      OwnedSocket one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (one.get() < 0) break;
      taken_.push_back(std::move(one));
    }
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
  std::vector<OwnedSocket> taken_;
};

TEST_F(ListenerTest, SurvivesALackOfDescriptors) {
  const auto listener = *Listen("127.0.0.1");
  std::vector<OwnedSocket> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(MakeClientSocket());
  {
    const NoDescriptors none;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Connect(clients[i], listener->port()));
      int error = 0;
      EXPECT_EQ(ReceiveAll(clients[i], error), "");
      EXPECT_EQ(error, ECONNRESET);
    }
    EXPECT_FALSE(listener->can_accept());
    EXPECT_EQ(n_refused_, 3);
  }
  ASSERT_TRUE(Connect(clients[3], listener->port()));
  AwaitAccepted(1);
  EXPECT_TRUE(listener->can_accept());
  EXPECT_EQ(n_refused_, 3);
}

TEST_F(ListenerTest, FreedDescriptorsAreNoticedWithoutAConnection) {
  const auto listener = *Listen("127.0.0.1");
  const OwnedSocket client = MakeClientSocket();
  {
    const NoDescriptors none;
    ASSERT_TRUE(Connect(client, listener->port()));
    while (listener->can_accept()) absl::SleepFor(absl::Milliseconds(1));
  }
  while (!listener->can_accept()) absl::SleepFor(absl::Milliseconds(1));
}

TEST(ConnectionsWithinLimitsTest, LeavesDescriptorsForFiles) {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 200;
  setrlimit(RLIMIT_NOFILE, &low);
  EXPECT_EQ(ConnectionsWithinLimits(1000), 136);
  EXPECT_EQ(ConnectionsWithinLimits(100), 100);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace lowkey
