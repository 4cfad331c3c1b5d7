#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/http/h1_session_testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Http1SessionTest, AnswersInChunks) {
  AnswerWithPath();
  EXPECT_EQ(Ask(kGet), absl::StrCat("HTTP/1.1 200 OK\r\n", std::string(kDate),
                                    "Transfer-Encoding: chunked\r\n\r\n2\r\n/g\r\n0\r\n\r\n"));
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
  EXPECT_FALSE(session().is_over());
  EXPECT_EQ(session().n_exchanges(), 0);
}

TEST_F(Http1SessionTest, AnswersWithoutABody) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.StartAndEnd(404, {{"x-y", "z"}, {"date", "never"}, {"connection", "upgrade"}});
  };
  EXPECT_EQ(Ask(kGet), absl::StrCat("HTTP/1.1 404 Not Found\r\n", std::string(kDate),
                                    "x-y: z\r\nContent-Length: 0\r\n\r\n"));
  script_.on_end = [](HttpExchange& exchange) { exchange.StartAndEnd(204, {}); };
  EXPECT_EQ(Ask(kGet), absl::StrCat("HTTP/1.1 204 No Content\r\n", std::string(kDate), "\r\n"));
}

TEST_F(Http1SessionTest, KeepsValuesInTheirLine) {
  script_.on_end = [](HttpExchange& exchange) { exchange.StartAndEnd(200, {{"a", "b\r\nc: d"}}); };
  EXPECT_THAT(Ask(kGet), HasSubstr("\r\na: b  c: d\r\n"));
}

TEST_F(Http1SessionTest, AnswersWithTheHandlersLength) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Start(200, {{"content-length", "3"}});
    exchange.Write("ab");
    exchange.Write("");
    exchange.Write("cd");  // past the length
    exchange.End({{"trailer", "x"}});
  };
  EXPECT_THAT(Ask(kGet), EndsWith("Content-Length: 3\r\n\r\nabc"));
  EXPECT_FALSE(session().is_over());
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Start(200, {{"content-length", "3"}});
    exchange.Write("ab");
    exchange.End({});
  };
  EXPECT_THAT(Ask(kGet), EndsWith("\r\n\r\nab"));
  EXPECT_TRUE(session().is_over());  // the client can tell no other way that a byte is missing
}

TEST_F(Http1SessionTest, AnswersHeadWithoutABody) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Start(200, {{"content-length", "3"}});
    exchange.Write("abc");
    exchange.End({});
  };
  EXPECT_THAT(Ask("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), EndsWith("Content-Length: 3\r\n\r\n"));
  AnswerWithPath();
  EXPECT_THAT(Ask("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), EndsWith("chunked\r\n\r\n"));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, DropsTrailers) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Start(200, {});
    exchange.End({{"grpc-status", "0"}});
  };
  EXPECT_THAT(Ask(kGet), EndsWith("\r\n\r\n0\r\n\r\n"));
}

TEST_F(Http1SessionTest, ClosesWhenTheClientSaysSo) {
  AnswerWithPath();
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
              HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(script_.log, ElementsAre("head /", "end", "gone"));
}

TEST_F(Http1SessionTest, SpeaksHttp10) {
  AnswerWithPath();
  EXPECT_EQ(Ask("GET /g HTTP/1.0\r\n\r\n"),
            absl::StrCat("HTTP/1.1 200 OK\r\n", std::string(kDate), "Connection: close\r\n\r\n/g"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, KeepsAnHttp10ConnectionThatAsksForIt) {
  script_.on_end = [](HttpExchange& exchange) { exchange.StartAndEnd(200, {}); };
  EXPECT_THAT(Ask("GET /g HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
              EndsWith("Content-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, AnswersPipelinedRequestsInTurn) {
  script_.on_head = [](HttpExchange& exchange) { exchange.AllowBody(100); };
  session().Receive(Post("Content-Length: 3\r\n", "abc") + std::string(kGet) + std::string(kGet),
                    now_);
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body abc", "end"));
  EXPECT_EQ(session().n_exchanges(), 1);
  AnswerWithPath();
  script_.exchange->StartAndEnd(202, {});
  EXPECT_EQ(n_flushes_, 1);
  const std::string out = Out();
  EXPECT_THAT(out, StartsWith("HTTP/1.1 202 Accepted"));
  EXPECT_THAT(out, EndsWith("2\r\n/g\r\n0\r\n\r\n"));
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body abc", "end", "gone", "head /g", "end",
                                       "gone", "head /g", "end", "gone"));
}

TEST_F(Http1SessionTest, GivesTheSameAnswersForEveryCut) {
  AnswerWithPath();
  AllowAll();
  const std::string text = Post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n") +
                           std::string(kGet) + Post("Content-Length: 2\r\n", "xy") +
                           "GET / HTTP/1.1\r\n\r\n";
  const std::string whole = Ask(text);
  const std::vector<std::string> whole_log = script_.log;
  EXPECT_THAT(whole, HasSubstr("HTTP/1.1 400 Bad Request"));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    session_.reset();
    script_.log.clear();
    std::string out = Ask(text.substr(0, cut));
    if (!session().is_over()) out += Ask(text.substr(cut));
    EXPECT_EQ(out, whole) << cut;
    EXPECT_EQ(script_.log, whole_log) << cut;
  }
  session_.reset();
  script_.log.clear();
  std::string out;
  for (const char& c : text) out += Ask(std::string_view(&c, 1));
  EXPECT_EQ(out, whole);
  EXPECT_EQ(script_.log, whole_log);
}

TEST_F(Http1SessionTest, LimitsPipelinedInput) {
  session().Receive(kGet, now_);
  session().Receive(std::string((16 << 10) - 1, 'a'), now_);
  EXPECT_TRUE(session().wants_input());
  session().Receive("a", now_);
  EXPECT_FALSE(session().wants_input());
}

TEST_F(Http1SessionTest, PassesOnTheBodyAsItIsAllowed) {
  session().Receive(Post("Content-Length: 6\r\n", "abcde"), now_);
  EXPECT_THAT(script_.log, ElementsAre("head /p"));
  EXPECT_FALSE(session().wants_input());
  script_.exchange->AllowBody(2);
  EXPECT_EQ(n_flushes_, 1);
  EXPECT_EQ(Out(), "");
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body ab"));
  EXPECT_FALSE(session().wants_input());
  script_.exchange->AllowBody(kAll);
  script_.exchange->AllowBody(kAll);
  EXPECT_EQ(Out(), "");
  EXPECT_TRUE(session().wants_input());
  session().Receive("f", now_);
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body abcdef", "end"));
}

TEST_F(Http1SessionTest, SaysContinueWhenTheBodyIsAllowed) {
  EXPECT_EQ(Ask(Post("Content-Length: 2\r\nExpect: 100-continue\r\n", "")), "");
  script_.exchange->AllowBody(1);
  script_.exchange->AllowBody(1);
  EXPECT_EQ(Out(), "HTTP/1.1 100 Continue\r\n\r\n");
  AnswerWithPath();
  EXPECT_THAT(Ask("ab"), HasSubstr("chunked\r\n\r\n2\r\n/p"));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, ClosesInsteadOfSayingContinue) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(Post("Content-Length: 2\r\nExpect: 100-continue\r\n", "")),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("Connection: close")));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, DropsAShortRestOfABody) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(LongPost(64 << 10)), Not(HasSubstr("close")));
  EXPECT_THAT(script_.log, ElementsAre("head /p", "gone"));
  EXPECT_TRUE(session().wants_input());
  EXPECT_EQ(Ask(std::string((64 << 10) - 1, 'x')), "");
  EXPECT_THAT(Ask(absl::StrCat("x", std::string(kGet))), StartsWith("HTTP/1.1 401"));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, ClosesOnALongRestOfABody) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(LongPost((64 << 10) + 1)), HasSubstr("Connection: close"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, ClosesWhenTheRestOfChunksIsLong) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(Post("Transfer-Encoding: chunked\r\n", "20000\r\n")), StartsWith("HTTP/1.1 401"));
  EXPECT_EQ(Ask(std::string(64 << 10, 'x')), "");
  EXPECT_FALSE(session().is_over());
  EXPECT_EQ(Ask("x"), "");
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(Http1SessionTest, CallsNoHandlerAfterItsEnd) {
  script_.on_head = [](HttpExchange& exchange) { exchange.AllowBody(100); };
  script_.on_body = [](HttpExchange& exchange, std::string_view) { exchange.StartAndEnd(413, {}); };
  Ask(Post("Content-Length: 6\r\n", "abc"));
  Ask("def");
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body abc", "gone"));
  EXPECT_FALSE(session().is_over());
}

TEST_F(Http1SessionTest, ResetClosesAtOnce) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  script_.exchange->Write("abc");
  script_.exchange->Reset(HttpReset::kCancel);
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end"));  // alive until a method of the session
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
  script_.exchange->Write("ignored");
  script_.exchange->End({});
  EXPECT_EQ(Out(), "");
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
  EXPECT_EQ(budgets_.answers.left(), 1 << 30);
}

TEST_F(Http1SessionTest, ResetWithinAHandler) {
  script_.on_head = [](HttpExchange& exchange) { exchange.Reset(HttpReset::kCancel); };
  EXPECT_EQ(Ask(Post("Content-Length: 6\r\n", "abc")), "");
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(script_.log, ElementsAre("head /p", "gone"));
}

TEST_F(Http1SessionTest, TheClientsEndEndsARunningExchange) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  session().ReceiveEnd(now_);
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
}

TEST_F(Http1SessionTest, TheClientsEndLeavesAWholeAnswer) {
  AnswerWithPath();
  session().Receive(kGet, now_);
  session().ReceiveEnd(now_);
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(Out(), EndsWith("0\r\n\r\n"));
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
}

TEST_F(Http1SessionTest, TheClientsEndWithoutARequest) {
  session().Receive("GET", now_);
  session().ReceiveEnd(now_);
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
  EXPECT_THAT(refusals_, IsEmpty());
}

TEST_F(Http1SessionTest, AnswersBadRequestsItself) {
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\n\r\n"),
            absl::StrCat("HTTP/1.1 400 Bad Request\r\n", std::string(kDate),
                         "content-type: text/plain; charset=utf-8\r\nContent-Length: 17\r\n"
                         "Connection: close\r\n\r\nthere is no Host\n"));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kBadProtocol));
  EXPECT_THAT(script_.log, IsEmpty());
}

TEST_F(Http1SessionTest, CountsHeadsThatAreTooLong) {
  EXPECT_THAT(Ask("GET /" + std::string(10000, 'a')), StartsWith("HTTP/1.1 414 "));
  session_.reset();
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost: h\r\na: " + std::string(20000, 'a')),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kHeadSize, NetworkRefusal::kHeadSize));
}

TEST_F(Http1SessionTest, ABrokenBodyEndsItsExchange) {
  AllowAll();
  EXPECT_THAT(Ask(Post("Transfer-Encoding: chunked\r\n", "1\r\nab")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body a", "gone"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, ABrokenBodyCutsAnAnswerThatHasBegun) {
  script_.on_head = [](HttpExchange& exchange) {
    exchange.AllowBody(kAll);
    exchange.Start(200, {});
  };
  EXPECT_EQ(Ask(Post("Transfer-Encoding: chunked\r\n", "1\r\nab")), "");
  EXPECT_THAT(script_.log, ElementsAre("head /p", "body a", "gone"));
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, ABrokenBodyLeavesAWholeAnswer) {
  script_.on_head = [](HttpExchange& exchange) { exchange.StartAndEnd(401, {}); };
  EXPECT_THAT(Ask(Post("Transfer-Encoding: chunked\r\n", "1\r\nab")), StartsWith("HTTP/1.1 401"));
  EXPECT_TRUE(session().is_over());
  session_.reset();
  EXPECT_THAT(Ask(Post("Transfer-Encoding: chunked\r\n", "1\r\n")), StartsWith("HTTP/1.1 401"));
  EXPECT_EQ(Ask("ab"), "");
  EXPECT_TRUE(session().is_over());
}

TEST_F(Http1SessionTest, ProducesInPiecesAndTellsTheHandler) {
  int n_sent = 0;
  script_.on_sent = [&n_sent](HttpExchange& exchange) {
    if (++n_sent == 3) exchange.Write("def");
  };
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  const size_t n_head = Out().size();
  EXPECT_GT(n_head, 0);
  EXPECT_EQ(script_.exchange->unsent_bytes(), 0);
  script_.exchange->Write("abc");
  EXPECT_EQ(script_.exchange->unsent_bytes(), 3);
  EXPECT_TRUE(session().has_output());
  std::string out;
  for (int i = 0; i < 100 && session().has_output(); ++i) out += Out(1);
  EXPECT_EQ(out, "3\r\nabc\r\n3\r\ndef\r\n");
  EXPECT_GE(n_sent, 3);
  EXPECT_EQ(script_.exchange->unsent_bytes(), 0);
}

TEST_F(Http1SessionTest, ProducesUpToTheBuffersSize) {
  AnswerWithPath();
  session().Receive(kGet, now_);
  std::string out = "12345";
  session().Produce(8, out, now_);
  EXPECT_EQ(out, "12345HTT");
}

TEST_F(Http1SessionTest, DoesNotReadWhileOutputWaits) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  script_.exchange->Write(std::string(64 << 10, 'x'));
  EXPECT_FALSE(session().wants_input());
  Out(1 << 10);
  EXPECT_TRUE(session().wants_input());
}

TEST_F(Http1SessionTest, TakesAnswersFromTheBudget) {
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  script_.exchange->Write("abc");
  const std::string out = Out(10);
  EXPECT_LT(budgets_.answers.left(), 1 << 30);
  session_.reset();
  EXPECT_EQ(budgets_.answers.left(), 1 << 30);
}

TEST_F(Http1SessionTest, EndsWhenItsAnswerIsTooLarge) {
  limits_.max_connection_answer_bytes = 1000;
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  script_.exchange->Write(std::string(1000, 'x'));
  EXPECT_TRUE(session().is_over());
  EXPECT_FALSE(session().has_output());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kAnswerMemory));
  EXPECT_THAT(script_.log, Not(::testing::Contains("gone")));
  EXPECT_EQ(Out(), "");
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
}

TEST_F(Http1SessionTest, EndsWhenAllAnswersAreTooLarge) {
  ASSERT_TRUE(budgets_.answers.Take((1 << 30) - 1000));
  session().Receive(kGet, now_);
  script_.exchange->Start(200, {});
  script_.exchange->Write(std::string(1000, 'x'));
  EXPECT_TRUE(session().is_over());
  EXPECT_THAT(refusals_, ElementsAre(NetworkRefusal::kAnswerMemory));
  EXPECT_EQ(budgets_.answers.left(), 1000);
}

TEST_F(Http1SessionTest, TellsTheHostOfOutputFromOutside) {
  script_.on_end = [](HttpExchange& exchange) {
    exchange.Start(200, {});
    exchange.Write("a");
  };
  session().Receive(kGet, now_);
  EXPECT_EQ(n_flushes_, 0);
  script_.exchange->Write("b");
  EXPECT_EQ(n_flushes_, 1);
  script_.exchange->End({});
  EXPECT_EQ(n_flushes_, 2);
}

TEST_F(Http1SessionTest, DestroysItsHandler) {
  session().Receive(kGet, now_);
  session_.reset();
  EXPECT_THAT(script_.log, ElementsAre("head /g", "end", "gone"));
}

TEST_F(Http1SessionTest, MakesADateForEachSecond) {
  AnswerWithPath();
  EXPECT_THAT(Ask(kGet), HasSubstr("10:20:30 GMT"));
  now_ += absl::Milliseconds(1500);
  EXPECT_THAT(Ask(kGet), HasSubstr("10:20:31 GMT"));
}

TEST_F(Http1SessionTest, HandlersRefuseBodiesThatFindNoMemory) {
  std::shared_ptr<const HeldBytes> held;
  script_.on_head = [&held](HttpExchange& exchange) {
    held = exchange.HoldBody(2000);
    if (held == nullptr) return exchange.StartAndEnd(503, {{"retry-after", "1"}});
    exchange.AllowBody(2000);
  };
  const int64_t all = budgets_.bodies.left();
  ASSERT_TRUE(budgets_.bodies.Take(all - 2000));
  EXPECT_EQ(Ask(LongPost(2000)), "");
  EXPECT_EQ(budgets_.bodies.left(), 0);
  EXPECT_TRUE(refusals_.empty());
  session_.reset();
  EXPECT_EQ(budgets_.bodies.left(), 0) << "what is held may outlive the session";
  held.reset();
  EXPECT_EQ(budgets_.bodies.left(), 2000);

  ASSERT_TRUE(budgets_.bodies.Take(1));
  EXPECT_EQ(Ask(LongPost(2000)).rfind("HTTP/1.1 503 ", 0), 0u);
  EXPECT_EQ(refusals_, std::vector<NetworkRefusal>{NetworkRefusal::kBodyMemory});
}

}  // namespace
}  // namespace lowkey
