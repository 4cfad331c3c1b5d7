// Deadlines and drains of HTTP/1.1 sessions, by a made clock.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/server/http/h1_session_testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(Http1SessionTest, AHeadMustComeInTime) {
  Pass(absl::Seconds(20));
  session().Receive("G", now_);
  for (int i = 0; i < 9; ++i) {
    Pass(absl::Seconds(1));
    session().Receive("E", now_);
  }
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(Out(), AllOf(StartsWith("HTTP/1.1 408 "), HasSubstr("Connection: close")));
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kHeadTimeout));
}

TEST_F(Http1SessionTest, AHeadThatWaitsForAnAnswerIsNotSlow) {
  session().Receive(absl::StrCat(std::string(kGet), "GET"), now_);
  Pass(absl::Seconds(100));
  script_.exchange->StartAndEnd(200, {});
  Out();
  Pass(absl::Seconds(9));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kHeadTimeout));
}

TEST_F(Http1SessionTest, AnAllowedBodyMustGoOn) {
  AllowAll();
  session().Receive(LongPost(100), now_);
  Pass(absl::Seconds(9));
  session().Receive("x", now_);
  Pass(absl::Seconds(9));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_THAT(Out(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body x", "gone"));
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kBodyTimeout));
}

TEST_F(Http1SessionTest, ABodyThatIsNotAllowedIsNotSlow) {
  session().Receive(LongPost(100) + "x", now_);
  Pass(absl::Seconds(1000));
  script_.exchange->AllowBody(1);
  Out();
  Pass(absl::Seconds(1000));
  EXPECT_FALSE(session().is_over());
  script_.exchange->AllowBody(1);
  Out();
  Pass(absl::Seconds(1000));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, ABodyMustEndInTime) {
  AllowAll();
  session().Receive(LongPost(1000), now_);
  for (int i = 0; i < 119; ++i) {
    Pass(absl::Seconds(1));
    ASSERT_FALSE(session().is_over());
    session().Receive("x", now_);
  }
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kBodyTimeout));
}

TEST_F(Http1SessionTest, TheEndOfChunksMustCome) {
  script_.on_head = [](HttpExchange& exchange) { exchange.AllowBody(1); };
  session().Receive(Post("Transfer-Encoding: chunked\r\n", "1\r\na"), now_);
  Pass(absl::Seconds(10));
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kBodyTimeout));
}

TEST_F(Http1SessionTest, ABodyThatIsDroppedMustGoOn) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(LongPost(100)), StartsWith("HTTP/1.1 401"));
  Pass(absl::Seconds(9));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
}

TEST_F(Http1SessionTest, AStrangersIdleConnectionEndsSooner) {
  Pass(absl::Seconds(29));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kIdleTimeout));
}

TEST_F(Http1SessionTest, ATrustedIdleConnectionEnds) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Trust();
    exchange.StartAndEnd(200, {});
  };
  Pass(absl::Seconds(29));
  EXPECT_FALSE(session().is_trusted());
  Ask(kGet);
  EXPECT_TRUE(session().is_trusted());
  Pass(absl::Seconds(74));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kIdleTimeout));
}

TEST_F(Http1SessionTest, AnAnswerThatIsBeingMadeIsNotIdle) {
  session().Receive(kGet, now_);
  Pass(absl::Hours(1));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, ASlowReaderIsCutOff) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  for (int i = 0; i < 3; ++i) {
    Pass(absl::Seconds(59));
    EXPECT_EQ(Out(1), std::string(1, "HTT"[i]));
  }
  script_.exchange->Write("abc");
  Pass(absl::Seconds(59));
  EXPECT_FALSE(session().is_over());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kUnreadAnswer));
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
}

TEST_F(Http1SessionTest, DrainEndsAnIdleSession) {
  session().BeginDrain();
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, DrainDoesNotWaitForTheRestOfABody) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  Ask(LongPost(100));
  EXPECT_FALSE(session().is_over());
  session().BeginDrain();
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, DrainAnswersWhatHasBegun) {
  AnswerWithPath();
  session().Receive("GET /g HTTP", now_);
  session().BeginDrain();
  EXPECT_FALSE(session().is_over());
  EXPECT_THAT(Ask("/1.1\r\nHost: h\r\n\r\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, DrainEndsAfterAnAnswerThatHasBegun) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  session().BeginDrain();
  EXPECT_FALSE(session().is_over());
  script_.exchange->End({});
  EXPECT_THAT(Out(), EndsWith("0\r\n\r\n"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, AnOldConnectionDrains) {
  limits_.max_age = absl::Seconds(100);
  session().Receive(kGet, now_);
  Pass(absl::Seconds(100));
  EXPECT_FALSE(session().is_over());
  script_.exchange->StartAndEnd(200, {});
  EXPECT_THAT(Out(), HasSubstr("Connection: close"));
  EXPECT_TRUE(session().is_over());
}

}  // namespace
}  // namespace lowkey
