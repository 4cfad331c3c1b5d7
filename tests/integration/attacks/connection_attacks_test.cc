// Connections: bursts past the limits, idle ones, handshakes that end nowhere.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/attacks/attack_fixture.h"

namespace lowkey {
namespace {

class ConnectionAttackTest : public AttackTest {
 protected:
  // Asks over the connection until the status line begins so, for at most ten seconds.
  static bool AwaitStatus(HttpClient& client, const std::string& path, const std::string& begin) {
    const absl::Time end = absl::Now() + absl::Seconds(10);
    do {
      if (client.Get(path).starts_with(begin)) return true;
      absl::SleepFor(absl::Milliseconds(10));
    } while (absl::Now() < end);
    return false;
  }

  // Leaves the server descriptors for so many more connections.
  void LeaveDescriptors(int n) const {
    const std::filesystem::directory_iterator open(absl::StrCat("/proc/", pid(), "/fd"));
    rlimit limit = {};
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
    limit.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open)) + n);
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  }

  std::vector<RawClient> Burst(int n) const {
    std::vector<RawClient> clients;
    for (int i = 0; i < n; ++i) clients.emplace_back(port());
    return clients;
  }
};

TEST_F(ConnectionAttackTest, BurstPastTheDescriptorsIsSurvived) {
  Serve();
  // Made before, of a client with credentials.
  HttpClient ready(port(), HttpClient::Over::kClear);
  ready.Get("/metrics", kToken);
  Withstand(
      [&] {
        LeaveDescriptors(20);
        for (int turn = 0; turn < 2; ++turn) {
          std::vector<RawClient> burst = Burst(60);
          EXPECT_TRUE(AwaitStatus(ready, "/ready", "HTTP/1.1 503 ")) << "while it is deaf";
          absl::SleepFor(absl::Milliseconds(300));  // it refuses one every 50 ms
          burst.clear();
          EXPECT_TRUE(AwaitStatus(ready, "/ready", "HTTP/1.1 200 ")) << "once there is room";
        }
      },
      HealthBy::kOldConnection);
  EXPECT_GT(Refused("descriptors"), 0);
}

TEST_F(ConnectionAttackTest, LowLimitOfDescriptorsBoundsConnections) {
  Serve({.descriptors = 128});
  Withstand(
      [&] {
        const std::vector<RawClient> burst = Burst(300);
        EXPECT_TRUE(Get("/ready").starts_with("HTTP/1.1 200 ")) << "a newcomer takes the place";
      },
      HealthBy::kOldConnection);
  EXPECT_GT(Refused("peer_connections"), 200);
  EXPECT_EQ(Refused("descriptors"), 0);
}

// --- Idle connections ---

class IdleConnectionTest : public ConnectionAttackTest {
 protected:
  static constexpr int kConnections = 2000;

  // Makes connections by `open` and keeps them. What each takes of the server's memory must be
  // less than `limit_bytes`.
  void ExpectSmall(double limit_bytes, const std::function<RawClient()>& open) {
    Serve({.flags = {"--max-connections", "4096"}, .asks_for_tokens = false});
    rlimit limit = {};
    ASSERT_EQ(prlimit(pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
    if (limit.rlim_cur < 2 * kConnections + 100) {
      GTEST_SKIP() << "RLIMIT_NOFILE: " << limit.rlim_cur << ", expected at least "
                   << 2 * kConnections + 100 << " for connections whose both ends are here";
    }
    Withstand([&] {
      const int64_t begin_bytes = MemoryBytes("VmRSS");
      std::vector<RawClient> clients;
      for (int i = 0; i < kConnections; ++i) clients.push_back(open());
      const double each_bytes =
          static_cast<double>(MemoryBytes("VmRSS") - begin_bytes) / kConnections;
      std::printf("  %.0f bytes each\n", each_bytes);
      EXPECT_LT(each_bytes, limit_bytes * static_cast<double>(MemoryFactor()));
      for (const RawClient& client : clients) EXPECT_TRUE(client.is_open());
    });
  }
};

TEST_F(IdleConnectionTest, TwoThousandOfHttp1TakeLittle) {
  ExpectSmall(8 << 10, [this] {
    RawClient client(port());
    client.Send("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    EXPECT_TRUE(client.Await([](std::string_view received) {
      return received.find("alive") != std::string_view::npos;
    }));
    return client;
  });
}

// nghttp2 takes 25 KiB for a session, of which an idle one touches a page (H2Memory).
TEST_F(IdleConnectionTest, TwoThousandOfHttp2TakeLittle) {
  ExpectSmall(8 << 10, [this] {
    RawClient client = OpenHttp2(port());
    // The server's SETTINGS, its window and the acknowledgement of ours.
    EXPECT_TRUE(
        client.Await([](std::string_view received) { return FramesIn(received).size() >= 3; }));
    client.Send(MakeH2Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0));
    return client;
  });
}

// --- TLS ---

TEST_F(ConnectionAttackTest, StalledHandshakesDelayNewcomersByAMoment) {
  Serve({.over = HttpClient::Over::kTls});
  const std::string hello = MakeClientHello();
  Withstand(
      [&] {
        std::vector<RawClient> stalled;
        for (size_t i = 0; i < 420; ++i) {  // the server shakes 256 hands at once
          stalled.emplace_back(port());
          stalled.back().Send(hello.substr(0, hello.size() * (i % 3) / 2));
        }
        const absl::Time begin = absl::Now();
        EXPECT_TRUE(Get("/health").starts_with("HTTP/1.1 200 "));
        const absl::Duration delay = absl::Now() - begin;
        EXPECT_LT(delay, absl::Seconds(5));
        std::printf("  a newcomer was served after %.1f s\n", absl::ToDoubleSeconds(delay));
      },
      HealthBy::kOldConnection);
}

TEST_F(ConnectionAttackTest, GarbageInsteadOfTlsIsRefused) {
  Serve({.over = HttpClient::Over::kTls});
  const std::string hello = MakeClientHello();
  std::mt19937 random(1);
  Withstand([&] {
    for (int i = 0; i < 300; ++i) {
      std::string bytes = i % 3 == 0 ? "GET /health HTTP/1.1\r\nHost: a\r\n\r\n" : hello;
      if (i % 3 == 1) bytes[9 + random() % (bytes.size() - 9)] ^= '\x55';
      if (i % 3 == 2) {
        for (char& byte : bytes) byte = static_cast<char>(random());
      }
      RawClient client(port());
      client.Send(bytes + std::string(64, '\0'));
      EXPECT_TRUE(client.AwaitEnd());
    }
  });
  EXPECT_GE(Refused("handshake_failure"), 290);
}

}  // namespace
}  // namespace lowkey
