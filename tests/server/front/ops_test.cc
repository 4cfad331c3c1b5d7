#include "server/front/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/server/front/http_get.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tests share a server; those that start another talk to it from then on.
class OpsServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    metrics_ = new Metrics("tales");
    shared_ = StartedServer({});
  }
  static void TearDownTestSuite() {
    delete shared_;
    delete metrics_;
  }

  // nullptr when it does not start.
  static OpsServer* StartedServer(const ConnectionLimits& limits) {
    auto server = OpsServer::Start(*metrics_, "127.0.0.1", 0, limits);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? server->release() : nullptr;
  }

  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    ASSERT_GT(server_->port(), 0);
  }

  void Start(const ConnectionLimits& limits) {
    own_.reset(StartedServer(limits));
    ASSERT_NE(own_, nullptr);
    server_ = own_.get();
  }

  static ConnectionLimits Hasty() {
    ConnectionLimits limits;
    limits.first_byte_timeout = limits.http.head_timeout = absl::Milliseconds(200);
    return limits;
  }

  HttpAnswer Get(const std::string& path, const std::string& method = "GET") {
    return HttpGet(server_->port(), path, method);
  }

  static inline Metrics* metrics_ = nullptr;
  static inline OpsServer* shared_ = nullptr;
  std::unique_ptr<OpsServer> own_;
  OpsServer* server_ = shared_;
};

TEST_F(OpsServerTest, ReadyFollowsTheStateAndHealthDoesNot) {
  EXPECT_EQ(Get("/ready").code, 503);  // as it begins
  EXPECT_THAT(Get("/ready").text, HasSubstr("\r\n\r\nloading\n"));
  EXPECT_EQ(Get("/health").code, 200);
  metrics_->SetState(ServingState::kServing);
  EXPECT_EQ(Get("/ready").code, 200);
  metrics_->SetState(ServingState::kDraining);
  EXPECT_EQ(Get("/ready").code, 503);
  EXPECT_THAT(Get("/ready").text, HasSubstr("\r\n\r\ndraining\n"));
  EXPECT_EQ(Get("/health").code, 200);
  metrics_->SetState(ServingState::kLoading);  // as others find it
}

TEST_F(OpsServerTest, MetricsAreInPrometheusFormat) {
  metrics_->CountRefusal(absl::StatusCode::kUnavailable);
  const HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.text, HasSubstr("content-type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer.text, HasSubstr("code=\"UNAVAILABLE\"} 1\n"));
}

TEST_F(OpsServerTest, HeadHasNoBody) {
  const HttpAnswer answer = Get("/health", "HEAD");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.text, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(OpsServerTest, OtherPathsAndMethodsAreRefused) {
  for (const char* path : {"/", "/metrics/", "/healthz", "/../../etc/passwd", "/%2e%2e/etc/passwd",
                           "/metrics%00", "//metrics.php"}) {
    EXPECT_NE(Get(path).code, 200) << path;
    EXPECT_THAT(Get(path).text, Not(HasSubstr("root:"))) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"}) {
    EXPECT_NE(Get("/metrics", method).code, 200) << method;
  }
  EXPECT_EQ(Get("/metrics", "POST").code, 405);
  EXPECT_EQ(Get("/nothing").code, 404);
}

TEST_F(OpsServerTest, HeadersOverTheirLimitAreRefused) {
  RawConnection connection(server_->port());
  connection.Send("GET /health HTTP/1.1\r\nX: " + std::string(1 << 20, 'a') + "\r\n\r\n");
  EXPECT_THAT(connection.ReadToEnd(), Not(HasSubstr(" 200 ")));
  EXPECT_EQ(Get("/health").code, 200);
}

TEST_F(OpsServerTest, BodyIsNeitherReadNorWaitedFor) {
  RawConnection connection(server_->port());
  connection.Send("POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000000\r\n\r\nabc");
  EXPECT_THAT(connection.ReadToEnd(), HasSubstr(" 405 "));
}

TEST_F(OpsServerTest, UnfinishedHeadersEndInTime) {
  Start(Hasty());
  RawConnection silent(server_->port()), slow(server_->port());
  slow.Send("GET /health HTTP/1.1\r\nHost:");
  for (RawConnection* connection : {&silent, &slow}) {
    bool is_closed = false;
    EXPECT_THAT(connection->ReadToEnd(&is_closed), Not(HasSubstr(" 200 ")));
    EXPECT_TRUE(is_closed);
  }
  EXPECT_EQ(Get("/health").code, 200);
}

TEST_F(OpsServerTest, OldConnectionsEnd) {
  ConnectionLimits limits;
  limits.http.max_age = absl::Milliseconds(200);
  Start(limits);
  RawConnection connection(server_->port());
  connection.Send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
  bool is_closed = false;
  EXPECT_THAT(connection.ReadToEnd(&is_closed), HasSubstr(" 200 "));
  EXPECT_TRUE(is_closed);
}

// The connections that are strangers' go, the oldest first.
TEST_F(OpsServerTest, NewConnectionTakesTheOldestStrangersPlace) {
  Start({});
  std::vector<std::unique_ptr<RawConnection>> trusted, strangers;
  for (int i = 0; i < 62; ++i) {
    trusted.push_back(std::make_unique<RawConnection>(server_->port()));
    trusted.back()->Send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(trusted.back()->ReadSome().rfind("HTTP/1.1 200", 0), 0u);
  }
  for (int i = 0; i < 2; ++i) {
    strangers.push_back(std::make_unique<RawConnection>(server_->port()));
  }
  EXPECT_EQ(Get("/health").code, 200);
  bool is_closed = false;
  EXPECT_EQ(strangers[0]->ReadToEnd(&is_closed), "");
  EXPECT_TRUE(is_closed);
  for (const auto& connection : trusted) {
    connection->Send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(connection->ReadSome().rfind("HTTP/1.1 200", 0), 0u);
  }
}

TEST_F(OpsServerTest, MoreConnectionsThanItTakesDoNotStopIt) {
  Start(Hasty());
  {
    std::vector<std::unique_ptr<RawConnection>> idle;
    for (int i = 0; i < 80; ++i) idle.push_back(std::make_unique<RawConnection>(server_->port()));
  }
  HttpAnswer answer;
  for (int i = 0; i < 100 && answer.code != 200; ++i) answer = Get("/health");
  EXPECT_EQ(answer.code, 200);
}

// The server answers any input with an error or closes, and goes on.
TEST_F(OpsServerTest, GarbageDoesNotStopIt) {
  std::mt19937 random(7);
  const std::string seeds[] = {
      "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
      "POST /ready HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
      "GET /health HTTP/1.1\r\nContent-Length: -1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "GET /health HTTP/9.9\r\nExpect: 100-continue\r\nRange: bytes=0-\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
      std::string(300, '\0')};
  for (int i = 0; i < 84; ++i) {
    std::string bytes = seeds[static_cast<size_t>(i) % std::size(seeds)];
    for (int n = i / 14; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
    RawConnection connection(server_->port());
    ASSERT_TRUE(connection.is_connected());
    connection.Send(bytes);
    // Ours to close: what is not a whole request would be waited for.
  }
  HttpAnswer answer;
  for (int i = 0; i < 100 && answer.code != 200; ++i) answer = Get("/health");
  EXPECT_EQ(answer.code, 200);
}

TEST_F(OpsServerTest, TakenPortIsAnError) {
  const auto second = OpsServer::Start(*metrics_, "127.0.0.1", server_->port());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("the port is in use"));
}

}  // namespace
}  // namespace lowkey
