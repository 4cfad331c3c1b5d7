// Clients that say something now and then, and nothing whole.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/attacks/attack_fixture.h"

namespace lowkey {
namespace {

using SlowClientTest = AttackTest;

constexpr int kEach = 20;  // clients of each kind

// A client and what it is going to say, byte by byte.
struct SlowClient {
  RawClient connection;
  std::string left;
};

TEST_F(SlowClientTest, HeadsAndBodiesAreEndedAtTheirDeadlines) {
  constexpr absl::Duration kDeadline = absl::Seconds(10), kPause = absl::Milliseconds(100);
  const std::string head = "GET /health HTTP/1.1\r\nX: " + std::string(1000, 'x');
  const std::string half_frame =
      MakeCallHead(1, "/grpc.health.v1.Health/Check", {{"x", std::string(1000, 'x')}});
  const std::string prefix = MakeCallHead(1, "/grpc.health.v1.Health/Check") +
                             MakeH2Frame(NGHTTP2_DATA, 0, 1, MakePrefix(100));
  Serve();
  Withstand([&] {
    std::vector<SlowClient> clients;
    for (int i = 0; i < kEach; ++i) {
      clients.push_back({RawClient(port()), ""});
      clients.push_back({RawClient(port()), head});
      clients.push_back({RawClient(port()), std::string(kHttp2Preface.substr(0, 20))});
      clients.push_back({OpenHttp2(port()), half_frame});
      clients.push_back({OpenHttp2(port()), ""});
      clients.back().connection.Send(prefix);
    }
    const absl::Time end = absl::Now() + kDeadline + absl::Seconds(1);
    while (absl::Now() < end) {
      for (SlowClient& client : clients) {
        if (client.left.empty() || !client.connection.is_open()) continue;
        client.connection.Send(client.left.substr(0, 1));
        client.left.erase(0, 1);
      }
      absl::SleepFor(kPause);
    }
    for (size_t i = 0; i < clients.size(); ++i) {
      if (i % 5 == 4) continue;  // its stream ends, not its connection
      EXPECT_TRUE(clients[i].connection.AwaitEnd(absl::Seconds(3))) << i;
    }
  });
  EXPECT_EQ(Refused("first_byte_timeout"), kEach);
  EXPECT_EQ(Refused("head_timeout"), 3 * kEach);
  EXPECT_EQ(Refused("body_timeout"), kEach);
}

TEST_F(SlowClientTest, HundredsOfSlowHeadsAndBodiesDelayNobody) {
  const std::string head = "GET /health HTTP/1.1\r\nX: " + std::string(1000, 'x');
  const std::string body =
      "POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x');
  Serve();
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < 200; ++i) clients.emplace_back(port());
    for (size_t n = 0; n < 80; ++n) {
      for (size_t i = 0; i < clients.size(); ++i) {
        clients[i].Send((i % 2 == 0 ? head : body).substr(n, 1));
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
  });
}

}  // namespace
}  // namespace lowkey
