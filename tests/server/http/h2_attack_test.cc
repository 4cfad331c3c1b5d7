// What clients do that mean no good, and what may come of it.

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/server/http/h2_fixture.h"

namespace lowkey {
namespace {

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
    ASSERT_EQ(budgets_.answers.left(), 64 << 20);
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

}  // namespace
}  // namespace lowkey
