#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/session.h"
#include "tests/server/http/h2_client.h"

namespace lowkey {
namespace {

constexpr int kEndStream = NGHTTP2_FLAG_END_STREAM;
constexpr int kEndHeaders = NGHTTP2_FLAG_END_HEADERS;

class H2SessionTest : public testing::Test {
 protected:
  void SetUp() override { Restart(); }

  void Restart() { session_ = MakeHttp2Session(host_, limits_, budget_, now_); }
  void Talk() { client_.Talk(*session_, now_); }

  // Talks after `duration`, with ticks on the way.
  void Wait(absl::Duration duration) {
    const absl::Time end = now_ + duration;
    while (now_ < end) {
      now_ = std::min(now_ + absl::Milliseconds(500), end);
      if (!session_->is_over()) session_->OnTick(now_);
    }
  }

  std::string Output() {
    std::string out;
    while (session_->has_output()) {
      const size_t n_before = out.size();
      session_->Produce(out.size() + 20'000, out, now_);
      if (out.size() == n_before) break;
    }
    return out;
  }

  FakeHost host_;
  HttpLimits limits_;
  ByteBudget budget_{64 << 20};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  H2Client client_;
  std::unique_ptr<HttpSession> session_;
};

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
  EXPECT_EQ(answer.body, "hello world");
  EXPECT_EQ(answer.trailers, (HttpFields{{"grpc-status", "0"}}));
  EXPECT_TRUE(answer.is_closed);
  EXPECT_EQ(answer.code, 0u);
  EXPECT_EQ(host_.n_live(), 0u);
  EXPECT_EQ(session_->n_exchanges(), 0u);
  EXPECT_EQ(host_.last().n_sent_calls, 0);  // the handler's end says it
  EXPECT_EQ(budget_.left(), 64 << 20);
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

TEST_F(H2SessionTest, StopsABodyThatIsNotNeeded) {
  host_.on_head = [](HttpExchange& exchange) {
    exchange.StartAndEnd(401, {{"www-authenticate", "Bearer"}});
  };
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  client_.AddBody(id, std::string(100'000, 'x'));
  Talk();
  EXPECT_EQ(client_.answers[id].head[0].value, "401");
  EXPECT_TRUE(client_.answers[id].is_closed);
  EXPECT_EQ(client_.answers[id].code, 0u);
  EXPECT_EQ(host_.last().body, "");
  EXPECT_FALSE(host_.last().has_body_ended);
  EXPECT_EQ(host_.n_live(), 0u);
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
  EXPECT_EQ(budget_.left(), 64 << 20);
  EXPECT_FALSE(session_->is_over());
}

TEST_F(H2SessionTest, ResetsAnExchange) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  host_.last().exchange->Reset(HttpReset::kRefusedStream);
  EXPECT_EQ(host_.n_live(), 1u);  // never within a call to its exchange
  Talk();
  EXPECT_EQ(client_.answers[id].code, static_cast<uint32_t>(NGHTTP2_REFUSED_STREAM));
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

TEST_F(H2SessionTest, DrainsWhenToldTo) {
  const int32_t id = client_.Begin(RequestFields("POST", "/a"));
  Talk();
  session_->BeginDrain();
  const int32_t late = client_.Send(RequestFields("GET", "/late"), "");
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0}));
  EXPECT_EQ(host_.last().head.path, "/late");
  session_->OnTick(now_ += absl::Milliseconds(100));
  Talk();
  EXPECT_EQ(client_.goaway_codes, (std::vector<uint32_t>{0, 0}));
  EXPECT_FALSE(session_->is_over());
  host_.on_body_end = [](HttpExchange& exchange) { exchange.StartAndEnd(200, {}); };
  host_.last().exchange->StartAndEnd(200, {});
  client_.EndBody(id);
  Talk();
  EXPECT_TRUE(client_.answers[late].is_closed);
  EXPECT_EQ(client_.answers[id].head[0].value, "200");
  session_->OnTick(now_);
  EXPECT_TRUE(session_->is_over());
  EXPECT_TRUE(host_.refusals.empty());
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

// --- Limits of a connection ---

class H2AttackTest : public H2SessionTest {
 protected:
  void SetUp() override {
    H2SessionTest::SetUp();
    session_->Receive(MakeH2Start(), now_);
    Output();
  }

  // Feeds the bytes until the session is over, as a client that reads everything.
  void Flood(const std::function<std::string(int)>& make, int n_times) {
    for (int i = 0; i < n_times && !session_->is_over(); ++i) {
      session_->Receive(make(i), now_);
      ASSERT_LE(session_->n_exchanges(), limits_.max_streams);
      if (!session_->is_over()) output_ = Output();
    }
    output_ = Output();
  }

  void ExpectGoaway(uint32_t code, std::string_view debug_data = {}) {
    EXPECT_TRUE(session_->is_over());
    EXPECT_EQ(host_.n_live(), 0u);
    const std::vector<H2Frame> frames = ParseH2Frames(output_);
    ASSERT_FALSE(frames.empty());
    EXPECT_EQ(frames.back().type, NGHTTP2_GOAWAY);
    EXPECT_EQ(frames.back().payload.substr(4), BigEndian(code) + std::string(debug_data));
    EXPECT_FALSE(session_->has_output());
  }

  std::string output_;
};

TEST_F(H2AttackTest, RefusesStreamsBeforeSettingsAreAcknowledged) {
  limits_.our_resets = {100'000, 0};
  Restart();
  session_->Receive(MakeH2Start(), now_);
  int n_refused = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    session_->Receive(MakeH2Request(2 * i + 1, kEndHeaders), now_);
    ASSERT_LE(session_->n_exchanges(), 100u);
    for (const H2Frame& frame : ParseH2Frames(Output())) {
      n_refused +=
          frame.type == NGHTTP2_RST_STREAM && frame.payload == BigEndian(NGHTTP2_REFUSED_STREAM);
    }
  }
  EXPECT_EQ(n_refused, 19'900);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kStreams], 19'900);
  EXPECT_EQ(host_.seen.size(), 100u);
  EXPECT_FALSE(session_->is_over());
}

TEST_F(H2AttackTest, EndsWhenTooManyStreamsAreRefused) {
  Flood([](int i) { return MakeH2Request(2 * i + 1, kEndHeaders); }, 20'000);
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_resets");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kResets], 1);
  EXPECT_EQ(host_.seen.size(), 100u);
  EXPECT_NEAR(host_.refusals[NetworkRefusal::kStreams], 1000, 10);
}

TEST_F(H2AttackTest, EndsWhenAcknowledgedLimitsAreExceeded) {
  session_->Receive(MakeH2Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0), now_);
  Flood([](int i) { return MakeH2Request(2 * i + 1, kEndHeaders); }, 200);
  ExpectGoaway(NGHTTP2_PROTOCOL_ERROR, "request HEADERS: max concurrent streams exceeded");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kStreams], 1);
  EXPECT_EQ(host_.seen.size(), 100u);
}

TEST_F(H2AttackTest, EndsUnderRapidResets) {
  Flood(
      [](int i) {
        return MakeH2Request(2 * i + 1, kEndHeaders) +
               MakeH2Frame(NGHTTP2_RST_STREAM, 0, 2 * i + 1, BigEndian(NGHTTP2_CANCEL));
      },
      100'000);
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_resets");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kResets], 1);
  EXPECT_NEAR(static_cast<double>(host_.seen.size()), 1000, 10);
}

TEST_F(H2AttackTest, TakesResetsAtALowRate) {
  for (int i = 0; i < 3000; ++i) {
    now_ += absl::Milliseconds(40);
    session_->Receive(MakeH2Request(2 * i + 1, kEndHeaders) +
                          MakeH2Frame(NGHTTP2_RST_STREAM, 0, 2 * i + 1, BigEndian(8)),
                      now_);
    ASSERT_FALSE(session_->is_over()) << i;
  }
  EXPECT_EQ(host_.n_live(), 0u);
}

// MadeYouReset: errors of streams let the server reset them.
TEST_F(H2AttackTest, EndsWhenItMustResetTooMuch) {
  Flood(
      [](int i) {
        return MakeH2Request(2 * i + 1, kEndHeaders) +
               MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 2 * i + 1, BigEndian(0x7fffffff));
      },
      100'000);
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_resets");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kResets], 1);
  EXPECT_NEAR(static_cast<double>(host_.seen.size()), 1000, 10);
}

TEST_F(H2AttackTest, EndsUnderFramesThatCarryNothing) {
  const std::vector<std::pair<const char*, std::string>> floods = {
      {"SETTINGS", MakeH2Frame(NGHTTP2_SETTINGS, 0, 0)},
      {"PRIORITY", MakeH2Frame(NGHTTP2_PRIORITY, 0, 7, BigEndian(0) + "a")},
      {"WINDOW_UPDATE", MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(1))},
      {"empty DATA", MakeH2Frame(NGHTTP2_DATA, 0, 1)},
      {"unknown", MakeH2Frame(0x99, 0, 0, "abc")},
      {"PING with ACK", MakeH2Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "12345678")},
      {"HEADERS of a closed stream", MakeH2Request(3, kEndHeaders | kEndStream)},
  };
  for (const auto& flood : floods) {
    SCOPED_TRACE(flood.first);
    host_.refusals.clear();
    Restart();
    session_->Receive(MakeH2Start() + MakeH2Request(1, kEndHeaders) +
                          MakeH2Request(3, kEndHeaders) +
                          MakeH2Frame(NGHTTP2_RST_STREAM, 0, 3, BigEndian(8)),
                      now_);
    int n_frames = 0;
    Flood(
        [&](int) {
          ++n_frames;
          return flood.second;
        },
        10'000);
    ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_control_frames");
    EXPECT_NEAR(n_frames, 2000, 5);
    EXPECT_EQ(host_.refusals[NetworkRefusal::kControlFrames], 1);
  }
}

TEST_F(H2AttackTest, CountsPingsAsGrpcDoes) {
  const std::string ping = MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678");
  session_->Receive(MakeH2Request(1, kEndHeaders), now_);
  host_.last().exchange->Start(200, {});
  for (int i = 0; i < 1000; ++i) {  // bandwidth probes between data
    host_.last().exchange->Write("x");
    Output();
    session_->Receive(ping, now_);
    ASSERT_FALSE(session_->is_over()) << i;
  }
  for (int i = 0; i < 10; ++i) {
    session_->Receive(ping, now_ += absl::Seconds(10));
    Output();
    ASSERT_FALSE(session_->is_over()) << i;
  }
  session_->Receive(ping, now_ += absl::Seconds(9));
  session_->Receive(ping, now_ += absl::Seconds(9));
  ASSERT_FALSE(session_->is_over());
  session_->Receive(ping, now_ += absl::Seconds(9));
  output_ = Output();
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kPings], 1);
}

TEST_F(H2AttackTest, CountsPingsWithoutStreamsByALongerInterval) {
  const std::string ping = MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678");
  for (int i = 0; i < 10; ++i) session_->Receive(ping, now_ += absl::Seconds(60));
  EXPECT_FALSE(session_->is_over());
  for (int i = 0; i < 3; ++i) session_->Receive(ping, now_ += absl::Seconds(59));
  EXPECT_TRUE(session_->is_over());
}

TEST_F(H2AttackTest, EndsUnderContinuations) {
  session_->Receive(MakeH2Request(1, 0), now_);
  const std::string block = MakeHeaderBlock({{"x", "y"}});
  Flood([&](int) { return MakeH2Frame(NGHTTP2_CONTINUATION, 0, 1, block); }, 100'000);
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(host_.refusals[NetworkRefusal::kHeadSize], 1);
}

TEST_F(H2AttackTest, EndsWhenAHeadIsABomb) {
  // An entry of the dynamic table that is named 16,000 times.
  std::string block = MakeHeaderBlock(RequestFields("POST", "/a"));
  block += std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'y');
  block += std::string(10'000, '\xbe');
  Flood([&](int) { return MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders, 1, block); }, 1);
  ExpectGoaway(NGHTTP2_ENHANCE_YOUR_CALM, "header_fields_too_large");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kHeadSize], 1);
  EXPECT_TRUE(host_.seen.empty());
}

TEST_F(H2AttackTest, TakesPaddingForNothing) {
  session_->Receive(MakeH2Request(1, kEndHeaders), now_);
  const std::string padded =
      MakeH2Frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, '\xff' + std::string(255, 0));
  for (int i = 0; i < 4096; ++i) {  // 1 MiB
    session_->Receive(padded, now_);
    Output();
    ASSERT_FALSE(session_->is_over()) << i;
  }
  EXPECT_EQ(host_.last().body, "");
}

TEST_F(H2AttackTest, EndsUnderOtherProtocols) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string(100, '\0'),
        std::string(kHttp2Preface) + MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678"),
        MakeH2Start() + MakeH2Frame(NGHTTP2_DATA, 0, 1, "x"),
        MakeH2Start() + MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders, 1, "\xff\xff\xff\xff\xff\xff"),
        MakeH2Start() + MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders, 2, "\x82"),
        MakeH2Start() + MakeH2Frame(NGHTTP2_PING, 0, 0, "1")}) {
    host_.refusals.clear();
    Restart();
    session_->Receive(bytes, now_);
    EXPECT_TRUE(session_->is_over()) << bytes;
    EXPECT_EQ(host_.refusals[NetworkRefusal::kBadProtocol], 1) << bytes;
    const std::vector<H2Frame> frames = ParseH2Frames(Output());
    ASSERT_GE(frames.size(), 2u);
    EXPECT_EQ(frames[0].type, NGHTTP2_SETTINGS);
    EXPECT_EQ(frames.back().type, NGHTTP2_GOAWAY);
  }
}

// What a client says in three requests, with frames of every kind.
std::vector<std::string> TypicalFrames() {
  HttpFields fields = RequestFields("POST", "/a");
  fields.push_back({"content-type", "application/grpc"});
  const std::string block = MakeHeaderBlock(fields);
  return {
      MakeH2Frame(NGHTTP2_SETTINGS, 0, 0, std::string("\0\4\0\0\x40\0", 6)),
      MakeH2Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0),
      MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders, 1, block),
      MakeH2Frame(NGHTTP2_DATA, 0, 1, "abcdefgh"),
      MakeH2Frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, std::string("\3abc\0\0\0", 7)),
      MakeH2Frame(NGHTTP2_HEADERS, 0, 3, block.substr(0, 20)),
      MakeH2Frame(NGHTTP2_CONTINUATION, kEndHeaders, 3, block.substr(20)),
      MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 1, BigEndian(100)),
      MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678"),
      MakeH2Frame(NGHTTP2_PRIORITY, 0, 3, BigEndian(1) + "a"),
      MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders | kEndStream, 1, MakeHeaderBlock({{"x", "y"}})),
      MakeH2Frame(NGHTTP2_RST_STREAM, 0, 3, BigEndian(8)),
      MakeH2Frame(NGHTTP2_HEADERS, kEndHeaders | kEndStream, 5, block),
      MakeH2Frame(0x10, 0, 0, BigEndian(5) + "u=1"),
      MakeH2Frame(NGHTTP2_GOAWAY, 0, 0, BigEndian(0) + BigEndian(0)),
  };
}

// Feeds mutated frames in pieces of any size; whatever comes of it, nothing may be left.
TEST_F(H2AttackTest, SurvivesMutatedFrames) {
  const std::vector<std::string> frames = TypicalFrames();
  std::mt19937 random(1);
  const auto answer = [](HttpExchange& exchange) {
    exchange.Start(200, {{"a", "b"}});
    exchange.Write(std::string(100, 'x'));
    exchange.AllowBody(100'000);
  };
  host_.on_head = answer;
  host_.on_body = [](HttpExchange& exchange, std::string_view) { exchange.Write("more"); };
  host_.on_body_end = [](HttpExchange& exchange) { exchange.End({{"c", "d"}}); };
  size_t n_requests = 0, n_ends = 0;
  for (int round = 0; round < 20'000; ++round) {
    Restart();
    std::string bytes(kHttp2Preface);
    for (const std::string& frame : frames) {
      const std::string& chosen = random() % 8 == 0 ? frames[random() % frames.size()] : frame;
      bytes += random() % 20 == 0 ? chosen + chosen : chosen;
    }
    for (uint32_t n = random() % 4; n > 0; --n) {
      bytes[24 + random() % (bytes.size() - 24)] ^= static_cast<char>(1 << random() % 8);
    }
    std::string_view left = bytes;
    while (!left.empty() && !session_->is_over()) {
      const size_t n = std::min<size_t>(1 + random() % 300, left.size());
      session_->Receive(left.substr(0, n), now_);
      left.remove_prefix(n);
      if (random() % 2 == 0) Output();
      session_->OnTick(now_ += absl::Milliseconds(1));
    }
    ParseH2Frames(Output());
    n_ends += session_->is_over();
    n_requests += host_.seen.size();
    session_.reset();
    ASSERT_EQ(host_.n_live(), 0u);
    ASSERT_EQ(budget_.left(), 64 << 20);
    host_.seen.clear();
  }
  EXPECT_GT(n_requests, 20'000u);  // otherwise little is tried
  EXPECT_GT(n_ends, 1'000u);
  EXPECT_LT(n_ends, 19'000u);
}

TEST_F(H2AttackTest, SurvivesRandomBytes) {
  std::mt19937 random(2);
  for (int round = 0; round < 5'000; ++round) {
    Restart();
    std::string bytes = round % 2 == 0 ? MakeH2Start() : std::string();
    for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<char>(random()));
    session_->Receive(bytes, now_);
    Output();
  }
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
  EXPECT_EQ(budget_.left(), 64 << 20);
  exchange.Write("x");  // is dropped
  exchange.End({});
  Talk();
  EXPECT_EQ(client_.answers[id].code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, SharesTheAnswersBudget) {
  client_.Send(RequestFields("GET", "/a"), "");
  Talk();
  ASSERT_TRUE(budget_.Take((64 << 20) - 10));
  host_.last().exchange->Start(200, {});
  host_.last().exchange->Write("0123456789");
  EXPECT_EQ(budget_.left(), 0);
  host_.last().exchange->Write("x");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kAnswerMemory], 1);
  EXPECT_EQ(budget_.left(), 10);
}

TEST_F(H2SessionTest, EndsWhenNothingIsRead) {
  H2Client slow(true);
  const int32_t id = slow.Send(RequestFields("GET", "/a"), "");
  slow.Talk(*session_, now_);
  host_.last().exchange->Start(200, {});
  host_.last().exchange->Write(std::string(1'000'000, 'x'));
  slow.Talk(*session_, now_);
  EXPECT_EQ(slow.answers[id].body.size(), 65'535u);
  EXPECT_TRUE(session_->wants_input());  // data that waits for a window does not count
  EXPECT_FALSE(session_->has_output());
  session_->OnTick(now_ += absl::Seconds(59));
  EXPECT_FALSE(session_->is_over());
  session_->OnTick(now_ += absl::Seconds(2));
  EXPECT_TRUE(session_->is_over());
  EXPECT_EQ(host_.refusals[NetworkRefusal::kUnreadAnswer], 1);
  EXPECT_EQ(host_.n_live(), 0u);
}

TEST_F(H2SessionTest, CutsOneAnswerThatIsNotRead) {
  H2Client slow(true);
  const int32_t blocked = slow.Send(RequestFields("GET", "/a"), "");
  const int32_t other = slow.Send(RequestFields("GET", "/b"), "");
  nghttp2_session_set_local_window_size(slow.session(), NGHTTP2_FLAG_NONE, 0, 1 << 24);
  slow.Talk(*session_, now_);
  HttpExchange& exchange = *host_.seen[0]->exchange;
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

TEST_F(H2AttackTest, ReadsNothingWhileOutputWaits) {
  session_->Receive(MakeH2Request(1, kEndHeaders), now_);
  EXPECT_TRUE(session_->wants_input());
  host_.last().exchange->Start(200, {});
  host_.last().exchange->Write(std::string(64 << 10, 'x'));
  EXPECT_TRUE(session_->has_output());
  EXPECT_FALSE(session_->wants_input());
  Output();
  EXPECT_TRUE(session_->wants_input());
}

TEST_F(H2AttackTest, BoundsWhatAClientThatNeverReadsCosts) {
  limits_.our_resets = limits_.control_frames = {1e9, 0};
  Restart();
  session_->Receive(MakeH2Start(), now_);
  size_t n_fed = 0;
  for (uint32_t i = 0; i < 300'000 && session_->wants_input(); ++i, ++n_fed) {
    session_->Receive(MakeH2Request(2 * i + 1, kEndHeaders), now_);
  }
  EXPECT_LT(n_fed, 10'000u);
  EXPECT_FALSE(session_->is_over());
  EXPECT_LT(Output().size(), 70'000u);
  EXPECT_TRUE(session_->wants_input());
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
