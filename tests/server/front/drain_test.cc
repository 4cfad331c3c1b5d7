// A drain loses nothing that was asked before the client knew of it.
#include <future>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/front/http_get.h"
#include "tests/server/http/h2_client.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

TEST(ServerDrainTest, WhatIsAskedBeforeTheClientKnowsOfADrainIsServed) {
  FakeEngine engine;
  TextService service(engine, TestTokenizer(), {"tales", {}, {}});
  const auto server = Server::Start(service, {.port = 0}).value();
  RawConnection connection(server->port());
  connection.Send(MakeH2Start());
  EXPECT_FALSE(connection.ReadSome().empty());
  auto drained = std::async(std::launch::async,
                            [&] { return server->Shutdown(absl::Now() + absl::Seconds(60)); });
  const std::string goaway("\0\0\x08\x07", 4);
  std::string seen;
  while (seen.find(goaway) == std::string::npos) seen += connection.ReadSome();
  // The ping beside it is not answered yet.
  connection.Send(MakeH2Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1,
                              MakeHeaderBlock({{":method", "POST"},
                                               {":scheme", "http"},
                                               {":path", "/v1/completions"},
                                               {":authority", "localhost"},
                                               {"content-type", "application/json"}})) +
                  MakeH2Frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1,
                              R"({"model": "tales", "prompt": "Once", "max_tokens": 3})"));
  ASSERT_TRUE(engine.WaitForRunning(1));
  engine.Finish(engine.ids().front(), FinishReason::kLength);
  EXPECT_THAT(connection.ReadToEnd(), HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_TRUE(drained.get());
}

TEST(ServerDrainTest, AnAnnouncedDrainServesOn) {
  FakeEngine engine;
  Metrics metrics("tales");
  TextService service(engine, TestTokenizer(), {"tales", {}, {}, &metrics});
  const auto server = Server::Start(service, {.port = 0}).value();
  server->AnnounceDrain();
  RawConnection asked(server->port());
  asked.Send("GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(asked.ReadToEnd(), HasSubstr(" 503 "));
  const std::string body = R"({"model": "tales", "prompt": "Once"})";
  RawConnection connection(server->port());
  connection.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(engine.WaitForRunning(1));
  engine.Finish(engine.ids().front(), FinishReason::kLength);
  EXPECT_THAT(connection.ReadToEnd(), HasSubstr("\"finish_reason\":\"length\""));
}

}  // namespace
}  // namespace lowkey
