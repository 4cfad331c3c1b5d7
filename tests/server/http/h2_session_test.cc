#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/http/session.h"
#include "tests/server/http/h2_fixture.h"

namespace lowkey {
namespace {

TEST_F(H2SessionTest, HandsOverAHead) {
  HttpFields fields = RequestFields("GET", "/a/b?c=d?e");
  fields.push_back({"x-a", "1"});
  fields.push_back({"x-a", "2"});
  fields.push_back({"te", "trailers"});
  client_.Send(fields, "");
  Talk();
  ASSERT_EQ(host_.seen.size(), 1u);
  const HttpHead& head = host_.last().head;
  EXPECT_EQ(head.method, "GET");
  EXPECT_EQ(head.path, "/a/b");
  EXPECT_EQ(head.query, "c=d?e");
  EXPECT_EQ(head.authority, "a.b");
  EXPECT_TRUE(head.is_http2);
  EXPECT_FALSE(head.has_body);
  EXPECT_EQ(head.fields, (HttpFields{{"x-a", "1"}, {"x-a", "2"}, {"te", "trailers"}}));
  EXPECT_EQ(head.All("x-a"), (std::vector<std::string_view>{"1", "2"}));
  EXPECT_EQ(head.One("x-a"), std::nullopt);
  EXPECT_EQ(head.One("te"), "trailers");
  EXPECT_TRUE(host_.last().has_body_ended);
  EXPECT_EQ(session_->n_exchanges(), 1u);
  EXPECT_EQ(host_.last().exchange->head().fields.capacity(), 0u) << "nobody needs it any more";
}

TEST_F(H2SessionTest, AnswersWithBodyAndTrailers) {
  host_.on_body_end = [](HttpExchange& exchange) {
    exchange.Start(200, {{"content-type", "text/plain"}});
    exchange.Write("hello ");
    exchange.Write("world");
    EXPECT_EQ(exchange.unsent_bytes(), 11u);
    exchange.End({{"grpc-status", "0"}});
  };
  const int32_t id = client_.Send(RequestFields("POST", "/a"), "some body");
  Talk();
  EXPECT_EQ(host_.last().body, "some body");
  EXPECT_TRUE(host_.last().head.has_body);
  const H2Client::Answer& answer = client_.answers[id];
  EXPECT_EQ(answer.head, (HttpFields{{":status", "200"}, {"content-type", "text/plain"}}));
  EXPECT_EQ(answer.date, "Mon, 12 Jan 1970 13:46:40 GMT");
  EXPECT_EQ(answer.body, "hello world");
  EXPECT_EQ(answer.trailers, (HttpFields{{"grpc-status", "0"}}));
  EXPECT_TRUE(answer.is_closed);
  EXPECT_EQ(answer.code, 0u);
  EXPECT_EQ(host_.n_live(), 0u);
  EXPECT_EQ(session_->n_exchanges(), 0u);
  EXPECT_EQ(host_.last().n_sent_calls, 0);  // the handler's end says it
  EXPECT_EQ(budgets_.answers.left(), 64 << 20);
  EXPECT_EQ(host_.n_flushes, 0);
}

TEST_F(H2SessionTest, AnswersLaterPieceByPiece) {
  const int32_t id = client_.Send(RequestFields("POST", "/a"), "");
  Talk();
  HttpExchange& exchange = *host_.last().exchange;
  exchange.Start(200, {});
  Talk();
  EXPECT_EQ(client_.answers[id].head.size(), 1u);
  exchange.Write("one");
  EXPECT_EQ(host_.n_flushes, 2);
  EXPECT_TRUE(session_->has_output());
  Talk();
  EXPECT_EQ(client_.answers[id].body, "one");
  EXPECT_EQ(exchange.unsent_bytes(), 0u);
  EXPECT_EQ(host_.last().n_sent_calls, 1);
  exchange.Write("two");
  Talk();
  exchange.End({{"a", "b"}});
  // The trailers need no empty frame before them.
  const std::vector<H2Frame> frames = ParseH2Frames(Output());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].type, NGHTTP2_HEADERS);
  EXPECT_EQ(frames[0].flags, kEndHeaders | kEndStream);
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, EndsWithoutTrailers) {
  const int32_t id = client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  HttpExchange& exchange = *host_.last().exchange;
  exchange.Start(200, {});
  exchange.Write("one");
  Talk();
  exchange.End({});
  Talk();
  EXPECT_EQ(client_.answers[id].body, "one");
  EXPECT_TRUE(client_.answers[id].is_closed);
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, SeesACancel) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  EXPECT_EQ(host_.n_live(), 1u);
  host_.last().exchange->Start(200, {});
  host_.last().exchange->Write("text");
  client_.Cancel(id);
  Talk();
  EXPECT_EQ(host_.n_live(), 0u);
  EXPECT_EQ(session_->n_exchanges(), 0u);
  EXPECT_EQ(budgets_.answers.left(), 64 << 20);
  EXPECT_FALSE(session_->is_over());
}

TEST_F(H2SessionTest, ResetsAnExchange) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  host_.last().exchange->Reset(HttpReset::kEnhanceYourCalm);
  EXPECT_EQ(host_.n_live(), 1u);  // never within a call to its exchange
  Talk();
  EXPECT_EQ(client_.answers[id].code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, DestroysHandlersAtItsEnd) {
  client_.Send(RequestFields("GET", "/a"), "");
  client_.Begin(RequestFields("POST", "/a"));
  Talk();
  EXPECT_EQ(host_.n_live(), 2u);
  session_->ReceiveEnd(now_);
  EXPECT_TRUE(session_->is_over());
  EXPECT_FALSE(session_->has_output());
  EXPECT_EQ(host_.n_live(), 0u);
  Restart();
  H2Client other;
  other.Send(RequestFields("GET", "/a"), "");
  other.Talk(*session_, now_);
  EXPECT_EQ(host_.n_live(), 1u);
  session_.reset();
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, LeavesTrustToTheHandler) {
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  EXPECT_FALSE(session_->is_trusted());
  host_.last().exchange->Trust();
  EXPECT_TRUE(session_->is_trusted());
}

// --- Heads ---

TEST_F(H2SessionTest, AnswersHeadsThatAreTooLarge) {
  HttpFields large = RequestFields("POST", "/a");
  for (int i = 0; i < 20; ++i) large.push_back({"x-a", std::string(1000, 'x')});
  HttpFields many = RequestFields("POST", "/a");
  for (int i = 0; i < 97; ++i) many.push_back({"x", ""});
  const int32_t id = client_.Send(large, "");
  const int32_t second = client_.Send(many, "");
  large.push_back({"content-type", "application/grpc+proto"});
  const int32_t grpc = client_.Begin(large);
  Talk();
  EXPECT_TRUE(host_.seen.empty());
  EXPECT_EQ(client_.answers[id].head, (HttpFields{{":status", "431"}}));
  EXPECT_EQ(client_.answers[second].head, (HttpFields{{":status", "431"}}));
  const HttpFields& head = client_.answers[grpc].head;
  ASSERT_EQ(head.size(), 4u);
  EXPECT_EQ(head[0].value, "200");
  EXPECT_EQ(head[1], (HttpField{"content-type", "application/grpc"}));
  EXPECT_EQ(head[2], (HttpField{"grpc-status", "8"}));
  EXPECT_TRUE(client_.answers[grpc].is_closed);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kHeadSize], 3);
  EXPECT_EQ(session_->n_exchanges(), 0u);
  many.pop_back();
  client_.Send(many, "");
  Talk();
  EXPECT_EQ(host_.seen.size(), 1u);
}

TEST_F(H2SessionTest, AnswersTargetsThatAreWrong) {
  const int32_t longest = client_.Send(RequestFields("GET", "/" + std::string(8191, 'x')), "");
  const int32_t longer = client_.Send(RequestFields("GET", "/" + std::string(8192, 'x')), "");
  const int32_t any = client_.Send(RequestFields("OPTIONS", "*"), "");
  HttpFields other = RequestFields("GET", "a");
  other[1].value = "ftp";  // nghttp2 checks only http's paths
  const int32_t bad = client_.Send(other, "");
  Talk();
  EXPECT_TRUE(client_.answers[longest].head.empty());
  EXPECT_TRUE(client_.answers[any].head.empty());
  EXPECT_EQ(host_.seen.size(), 2u);
  EXPECT_EQ(client_.answers[longer].head, (HttpFields{{":status", "414"}}));
  EXPECT_EQ(client_.answers[bad].head, (HttpFields{{":status", "400"}}));
}

TEST_F(H2SessionTest, ResetsMalformedRequests) {
  const std::vector<HttpFields> cases = {
      {{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", ""}, {":authority", "a"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "b"}, {":authority", "a"}},
      {{":method", "GET"}, {":scheme", "http"}, {":path", "*"}, {":authority", "a"}},
      {{":method", "GET"}, {":path", "/"}, {":authority", "a"}},
      {{":method", "G"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}, {"A", "b"}},
      {{":method", "G"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}, {"a", "\n"}},
      {{":method", "G"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}, {"te", "x"}},
  };
  session_->Receive(MakeH2Start(), now_);
  Output();
  uint32_t id = 1;
  for (const HttpFields& fields : cases) {
    session_->Receive(
        MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders | kEndStream, id, MakeHeaderBlock(fields)), now_);
    const std::vector<H2Frame> frames = ParseH2Frames(Output());
    ASSERT_EQ(frames.size(), 1u) << id;
    EXPECT_EQ(frames[0].type, NGHTTP2_RST_STREAM) << id;
    EXPECT_EQ(frames[0].payload, BigEndian(NGHTTP2_PROTOCOL_ERROR)) << id;
    id += 2;
  }
  EXPECT_TRUE(host_.seen.empty());
  EXPECT_EQ(session_->n_exchanges(), 0u);
  EXPECT_FALSE(session_->is_over());
}

TEST_F(H2SessionTest, TakesPaddingOfGrpcsLoadBalancer) {
  HttpFields fields = RequestFields("POST", "/a");
  fields.push_back({"grpclb_client_stats", std::string(9 << 10, 'x')});
  client_.Send(fields, "");
  Talk();
  EXPECT_EQ(host_.seen.size(), 1u);
}

// --- Answers that wait ---

TEST_F(H2SessionTest, BoundsAConnectionsAnswers) {
  limits_.max_connection_answer_bytes = 100'000;
  const int32_t id = client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  HttpExchange& exchange = *host_.last().exchange;
  exchange.Start(200, {});
  exchange.Write(std::string(100'000, 'x'));
  EXPECT_EQ(exchange.unsent_bytes(), 100'000u);
  exchange.Write("x");
  EXPECT_EQ(exchange.unsent_bytes(), 0u);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kAnswerMemory], 1);
  EXPECT_EQ(budgets_.answers.left(), 64 << 20);
  exchange.Write("x");  // is dropped
  exchange.End({});
  Talk();
  EXPECT_EQ(client_.answers[id].code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(host_.n_live(), 0u);
}

// Pages need no credentials, and all share one budget.
TEST_F(H2SessionTest, StrangersMayLeaveAFewPagesUnread) {
  for (int i = 0; i < 5; ++i) client_.Send(RequestFields("GET", "/"), "");
  Talk();
  for (int i = 0; i < 5; ++i) {
    host_.seen[i]->exchange->Start(200, {});
    host_.seen[i]->exchange->Write(std::string(60'000, 'x'));
  }
  EXPECT_EQ(host_.refusals[NetworkRefusal::kAnswerMemory], 1);
  EXPECT_EQ(budgets_.answers.left(), (64 << 20) - 4 * 60'000);
  host_.seen[0]->exchange->Trust();
  host_.seen[0]->exchange->Write(std::string(1'000'000, 'x'));
  EXPECT_EQ(host_.refusals[NetworkRefusal::kAnswerMemory], 1);
}

TEST_F(H2SessionTest, SharesTheAnswersBudget) {
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  ASSERT_TRUE(budgets_.answers.Take((64 << 20) - 10));
  host_.last().exchange->Start(200, {});
  host_.last().exchange->Write("0123456789");
  EXPECT_EQ(budgets_.answers.left(), 0);
  host_.last().exchange->Write("x");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kAnswerMemory], 1);
  EXPECT_EQ(budgets_.answers.left(), 10);
}

TEST_F(H2SessionTest, EndsWhenNothingIsRead) {
  H2Client slow(true);
  const int32_t id = slow.Send(RequestFields("GET", "/a"), "");
  slow.Send(RequestFields("GET", "/b"), "");
  slow.Talk(*session_, now_);
  host_.seen[0]->exchange->Trust();
  host_.seen[0]->exchange->Start(200, {});
  host_.seen[0]->exchange->Write(std::string(1'000'000, 'x'));
  slow.Talk(*session_, now_);
  EXPECT_EQ(slow.answers[id].body.size(), 65'535u);
  EXPECT_TRUE(session_->wants_input());  // data that waits for a window does not count
  EXPECT_FALSE(session_->has_output());
  session_->OnTick(now_ += absl::Seconds(59));
  EXPECT_EQ(host_.n_live(), 2u);
  session_->OnTick(now_ += absl::Seconds(2));
  EXPECT_EQ(host_.refusals[NetworkRefusal::kUnreadAnswer], 1);
  EXPECT_EQ(host_.n_live(), 1u) << "the other one waits for its answer";
  session_->OnTick(now_ += absl::Seconds(61));
  EXPECT_TRUE(session_->is_over()) << "the reset was not read either";
}

TEST_F(H2SessionTest, CutsOneAnswerThatIsNotRead) {
  H2Client slow(true);
  const int32_t blocked = slow.Send(RequestFields("GET", "/a"), "");
  const int32_t other = slow.Send(RequestFields("GET", "/b"), "");
  nghttp2_session_set_local_window_size(slow.session(), NGHTTP2_FLAG_NONE, 0, 1 << 24);
  slow.Talk(*session_, now_);
  HttpExchange& exchange = *host_.seen[0]->exchange;
  exchange.Trust();
  exchange.Start(200, {});
  exchange.Write(std::string(1'000'000, 'x'));
  host_.seen[1]->exchange->Start(200, {});
  for (int i = 0; i < 70; ++i) {
    host_.seen[1]->exchange->Write("x");
    session_->OnTick(now_ += absl::Seconds(1));
    slow.Talk(*session_, now_);
  }
  EXPECT_FALSE(session_->is_over());
  EXPECT_EQ(slow.answers[blocked].code, static_cast<uint32_t>(NGHTTP2_CANCEL));
  EXPECT_EQ(slow.answers[other].body.size(), 70u);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kUnreadAnswer], 1);
}

// --- Deadlines ---

TEST_F(H2SessionTest, EndsWithoutAPreface) {
  session_->Receive(kHttp2Preface.substr(0, 10), now_);
  Wait(absl::Seconds(10));
  EXPECT_FALSE(session_->is_over());
  Wait(absl::Seconds(1));
  EXPECT_TRUE(session_->is_over());
  EXPECT_EQ(host_.refusals[NetworkRefusal::kHeadTimeout], 1);
}

TEST_F(H2AttackTest, EndsWhenAHeadDoesNotEnd) {
  const std::string head = MakeH2Request(1, kEndHeaders);
  for (const std::string& part : {MakeH2Request(1, 0), head.substr(0, head.size() - 1)}) {
    host_.refusals.clear();
    Restart();
    session_->Receive(MakeH2Start() + part, now_);
    Wait(absl::Seconds(10));
    EXPECT_FALSE(session_->is_over());
    Wait(absl::Seconds(1));
    EXPECT_TRUE(session_->is_over());
    EXPECT_EQ(host_.refusals[NetworkRefusal::kHeadTimeout], 1);
  }
}

TEST_F(H2SessionTest, EndsAnIdleConnection) {
  Talk();
  Wait(absl::Seconds(30));
  EXPECT_FALSE(session_->is_over());
  host_.on_head = [](HttpExchange& exchange) {
    exchange.Trust();
    exchange.StartAndEnd(200, {});
  };
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  Wait(absl::Seconds(300));
  EXPECT_FALSE(session_->is_over());
  Wait(absl::Seconds(1));
  EXPECT_TRUE(session_->is_over());
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0}));
  EXPECT_EQ(host_.refusals[NetworkRefusal::kIdleTimeout], 1);
}

TEST_F(H2SessionTest, EndsAnIdleStrangerSooner) {
  Talk();
  Wait(absl::Seconds(31));
  EXPECT_TRUE(session_->is_over());
}

TEST_F(H2SessionTest, PingsAClientThatIsSilent) {
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  Wait(absl::Seconds(31));
  Talk();
  EXPECT_EQ(client_.n_pings, 1);
  Wait(absl::Seconds(31));
  EXPECT_FALSE(session_->is_over());
  Output();  // the second ping is lost
  Wait(absl::Seconds(21));
  EXPECT_TRUE(session_->is_over());
  EXPECT_EQ(host_.n_live(), 0u);
}

}  // namespace
}  // namespace lowkey
