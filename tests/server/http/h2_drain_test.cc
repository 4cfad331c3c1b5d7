// Sessions of HTTP/2 that drain: requests that cross the notice are answered.
#include <vector>

#include "tests/server/http/h2_fixture.h"

namespace lowkey {
namespace {

TEST_F(H2SessionTest, DrainsWhenToldTo) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  session_->BeginDrain();
  session_->BeginDrain();
  EXPECT_FALSE(session_->has_told());
  // It crosses the notice: the client has not answered the ping.
  const int32_t late = client_.Send(RequestFields("GET", "/late"), "");
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0, 0}));
  EXPECT_FALSE(session_->has_told()) << "the first body is on its way";
  EXPECT_EQ(host_.last().head.path, "/late");
  EXPECT_FALSE(session_->is_over());
  host_.on_body_end = [](HttpExchange& exchange) { exchange.StartAndEnd(200, {}); };
  host_.last().exchange->StartAndEnd(200, {});
  client_.EndBody(id);
  Talk();
  EXPECT_TRUE(session_->has_told());
  EXPECT_TRUE(client_.answers[late].is_closed);
  EXPECT_EQ(client_.answers[id].head[0].value, "200");
  session_->OnTick(now_);
  EXPECT_TRUE(session_->is_over());
  EXPECT_TRUE(host_.refusals.empty());
}

TEST_F(H2SessionTest, AClientThatDoesNotAnswerHasHalfASecondToLearnOfADrain) {
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  session_->BeginDrain();
  Output();  // notice and ping are lost
  session_->OnTick(now_ += absl::Milliseconds(100));
  session_->OnTick(now_ += absl::Milliseconds(400));
  EXPECT_FALSE(session_->has_told());
  client_.Send(RequestFields("GET", "/late"), "");
  Talk();
  EXPECT_EQ(host_.last().head.path, "/late");
  EXPECT_TRUE(client_.goaway_codes.empty());
  session_->OnTick(now_ += absl::Milliseconds(100));
  EXPECT_TRUE(session_->has_told());
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0}));
  EXPECT_FALSE(session_->is_over());
}

TEST_F(H2SessionTest, DrainsAnOldConnection) {
  limits_.max_age = absl::Seconds(20);
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  Wait(absl::Seconds(20));
  Talk();
  EXPECT_TRUE(client_.goaway_codes.empty());
  Wait(absl::Seconds(1));
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0, 0}));
  EXPECT_FALSE(session_->is_over());
  host_.last().exchange->StartAndEnd(200, {});
  Talk();
  Wait(absl::Seconds(1));
  EXPECT_TRUE(session_->is_over());
  EXPECT_TRUE(host_.refusals.empty());
}

}  // namespace
}  // namespace lowkey
