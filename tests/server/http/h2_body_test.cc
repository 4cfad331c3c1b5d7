// Bodies of requests: when they are read, dropped and cut.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <string>

#include "server/http/session.h"
#include "tests/server/http/h2_fixture.h"

namespace lowkey {
namespace {

// A handler that refuses with the head alone.
void Refuse(HttpExchange& exchange) { exchange.StartAndEnd(401, {{"www-authenticate", "Bearer"}}); }

TEST_F(H2SessionTest, DropsABodyThatIsNotNeeded) {
  host_.on_head = &Refuse;
  const int32_t id = client_.Send(RequestFields("POST", "/a"), std::string(500'000, 'x'));
  Talk();
  EXPECT_EQ(client_.answers[id].head[0].value, "401");
  EXPECT_TRUE(client_.answers[id].is_closed);
  EXPECT_EQ(client_.n_resets, 0);
  EXPECT_EQ(host_.last().body, "");
  EXPECT_FALSE(host_.last().has_body_ended);
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, StopsADroppedBodyThatIsTooLongOrDoesNotEnd) {
  host_.on_head = &Refuse;
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  client_.AddBody(id, std::string(2'000'000, 'x'));
  Talk();
  EXPECT_EQ(client_.answers[id].head[0].value, "401");
  EXPECT_TRUE(client_.answers[id].is_closed);
  EXPECT_EQ(client_.n_resets, 1);
  const int32_t slow = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  EXPECT_FALSE(client_.answers[slow].is_closed);
  EXPECT_EQ(host_.n_live(), 0u);
  Wait(absl::Seconds(4));
  Talk();
  EXPECT_FALSE(client_.answers[slow].is_closed);
  Wait(absl::Seconds(2));
  Talk();
  EXPECT_TRUE(client_.answers[slow].is_closed);
  EXPECT_EQ(client_.answers[slow].code, 0u);
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, DropsNothingOfGrpcsClients) {
  host_.on_head = &Refuse;
  HttpFields fields = RequestFields("POST", "/a");
  fields.push_back({"content-type", "application/grpc"});
  const int32_t id = client_.Begin(fields);
  client_.AddBody(id, "x");
  Talk();
  EXPECT_TRUE(client_.answers[id].is_closed);
  EXPECT_EQ(client_.n_resets, 1);
  EXPECT_EQ(client_.answers[id].code, 0u);
  EXPECT_EQ(client_.answers[id].date, "");  // gRPC's answers are as short as may be
}

TEST_F(H2SessionTest, HoldsABodyUntilItIsAllowed) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  const std::string body(5'000'000, 'x');
  client_.AddBody(id, body);
  client_.EndBody(id);
  Talk();
  SeenExchange& seen = host_.last();
  EXPECT_LE(seen.body.size(), 64u << 10);
  EXPECT_GE(seen.body.size(), (64u << 10) - 1);
  seen.exchange->AllowBody(4 << 20);
  Talk();
  EXPECT_GE(seen.body.size(), (64u << 10) + (4u << 20) - 1);
  EXPECT_LE(seen.body.size(), (64u << 10) + (4u << 20));
  while (seen.body.size() < body.size()) {  // small steps never stall
    const size_t n_before = seen.body.size();
    for (int i = 0; i < 100; ++i) seen.exchange->AllowBody(1000);
    Talk();
    ASSERT_GT(seen.body.size(), n_before);
  }
  EXPECT_TRUE(seen.has_body_ended);
  EXPECT_EQ(seen.body, body);
}

TEST_F(H2SessionTest, GivesTheConnectionsWindowBackAtOnce) {
  for (int i = 0; i < 90; ++i) {
    client_.AddBody(client_.Begin(RequestFields("POST", "/a")), std::string(64'000, 'x'));
  }
  Talk();
  ASSERT_EQ(host_.seen.size(), 90u);
  for (const auto& seen : host_.seen) EXPECT_EQ(seen->body.size(), 64'000u);
}

TEST_F(H2SessionTest, SaysThatAnExpectedBodyMayCome) {
  HttpFields fields = RequestFields("POST", "/a");
  fields.push_back({"expect", "100-Continue"});
  const int32_t id = client_.Begin(fields);
  Talk();
  EXPECT_TRUE(client_.answers[id].head.empty()) << "nobody wants the body yet";
  host_.last().exchange->AllowBody(10);
  Talk();
  EXPECT_EQ(client_.answers[id].head, (HttpFields{{":status", "100"}}));
  host_.last().exchange->AllowBody(10);
  host_.last().exchange->StartAndEnd(200, {});
  Talk();
  EXPECT_EQ(client_.answers[id].trailers, (HttpFields{{":status", "200"}}))
      << "nghttp2's client has the final head where trailers come";
  fields.back().value = "a miracle";
  const int32_t other = client_.Begin(fields);
  Talk();
  EXPECT_EQ(client_.answers[other].head, (HttpFields{{":status", "417"}}));
}

TEST_F(H2SessionTest, CutsABodyThatStalls) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  client_.AddBody(id, "1234");
  Talk();
  Wait(absl::Seconds(25));  // nothing is waited for
  EXPECT_EQ(host_.n_live(), 1u);
  host_.last().exchange->AllowBody(6);
  Wait(absl::Seconds(9));
  client_.AddBody(id, "5");
  Talk();
  Wait(absl::Seconds(10));
  EXPECT_EQ(host_.n_live(), 1u);
  Wait(absl::Seconds(1));
  Talk();
  EXPECT_EQ(host_.n_live(), 0u);
  EXPECT_EQ(client_.answers[id].code, static_cast<uint32_t>(NGHTTP2_CANCEL));
  EXPECT_EQ(host_.refusals[NetworkRefusal::kBodyTimeout], 1);
}

TEST_F(H2SessionTest, CutsABodyThatTakesTooLong) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  host_.last().exchange->AllowBody(1000);
  int n_seconds = 0;
  for (; host_.n_live() > 0 && n_seconds < 500; ++n_seconds) {
    client_.AddBody(id, "x");
    Wait(absl::Seconds(1));
    Talk();
  }
  EXPECT_NEAR(n_seconds, 121, 1);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kBodyTimeout], 1);
}

}  // namespace
}  // namespace lowkey
