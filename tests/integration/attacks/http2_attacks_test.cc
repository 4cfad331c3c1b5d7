// Strangers attack the real server over HTTP/2 with heads, resets and floods of frames.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/attacks/attack_fixture.h"

namespace lowkey {
namespace {

constexpr char kGenerate[] = "/lowkey.v1.Generation/Generate";
constexpr char kGenerateStream[] = "/lowkey.v1.Generation/GenerateStream";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr int kFlood = 100'000;
constexpr size_t kFramesPerSend = 1000;

class Http2AttackTest : public AttackTest {
 protected:
  // Sends what `make` makes of 0, 1 and so on over a new connection, until the server ends it.
  RawClient Flood(const std::string& first, const std::function<std::string(int)>& make) const {
    RawClient client = OpenHttp2(port());
    client.Send(first);
    std::string bytes;
    for (int i = 0; i < kFlood && client.is_open(); ++i) {
      bytes += make(i);
      if (i % kFramesPerSend != kFramesPerSend - 1) continue;
      client.Send(bytes);
      bytes.clear();
    }
    return client;
  }

  // `says`: what the server's GOAWAY says; empty: anything.
  static void ExpectCalmed(RawClient& client, const std::string& says = "") {
    EXPECT_TRUE(client.AwaitEnd());
    const auto goaway = GoawayIn(client.received());
    ASSERT_TRUE(goaway.has_value());
    EXPECT_EQ(goaway->code, static_cast<uint32_t>(NGHTTP2_ENHANCE_YOUR_CALM));
    if (!says.empty()) {
      EXPECT_EQ(goaway->debug_data, says);
    }
  }
};

std::string MakeReset(uint32_t stream) {
  return MakeH2Frame(NGHTTP2_RST_STREAM, 0, stream, BigEndian(NGHTTP2_CANCEL));
}

uint32_t StreamOf(int i) { return 2 * static_cast<uint32_t>(i) + 1; }

// --- Heads ---

// libgrpc++ 1.51 aborts when metadata of its own come from outside in a head that is too long.
TEST_F(Http2AttackTest, FieldsThatAbortOtherServersAreFieldsLikeAnyOther) {
  Serve();
  const std::string padding(9 << 10, 'x');
  Withstand([&] {
    for (const char* name :
         {"grpclb_client_stats", "lb-token", "lb-cost-bin", "grpc-server-stats-bin",
          "grpc-tags-bin", "grpc-trace-bin", "endpoint-load-metrics-bin", "grpc-status",
          "grpc-message", "grpc-previous-rpc-attempts", "grpc-retry-pushback-ms",
          "grpc-internal-encoding-request", "content-encoding", "user-agent", "host"}) {
      SCOPED_TRACE(name);
      RawClient client = OpenHttp2(port());
      const HttpFields fields = {{name, "x"}, {"padding", padding}};
      client.Send(MakeCallHead(1, kGenerate, fields) +
                  MakeCallHead(3, "/grpc.health.v1.Health/Check", fields) + MakeCallBody(3, ""));
      EXPECT_TRUE(client.Await([](std::string_view received) {
        return !FieldIn(received, 1, "grpc-status").empty() &&
               !FieldIn(received, 3, "grpc-status").empty();
      }));
      EXPECT_EQ(FieldIn(client.received(), 1, "grpc-status"), "16");
      EXPECT_EQ(FieldIn(client.received(), 3, "grpc-status"), "0");
    }
  });
}

TEST_F(Http2AttackTest, HeadsPastTheLimitAreRefusedEachForItself) {
  Serve();
  const std::string half(9 << 10, 'x');
  HttpFields fields = RequestFields("POST", kGenerate);
  fields.push_back({"content-type", "application/grpc"});
  fields.push_back({"grpclb_client_stats", half});
  fields.push_back({"padding", half});
  const std::string block = MakeHeaderBlock(fields);
  const auto head = [&](uint32_t stream) {
    return MakeH2Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, stream, block.substr(0, 10'000)) +
           MakeH2Frame(NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, stream,
                       block.substr(10'000));
  };
  Withstand([&] {
    RawClient client = OpenHttp2(port());
    for (int i = 0; i < 100; ++i) {
      client.Send(head(StreamOf(i)));
      EXPECT_TRUE(client.Await([i](std::string_view received) {
        return FieldIn(received, StreamOf(i), "grpc-status") == "8";
      }));
    }
  });
  EXPECT_EQ(Refused("head_size"), 100);
}

TEST_F(Http2AttackTest, FloodsOfContinuationsAreCutShort) {
  Serve();
  const std::string head = MakeH2Request(1, 0);
  const std::string more = MakeH2Frame(NGHTTP2_CONTINUATION, 0, 1, MakeHeaderBlock({{"x", "y"}}));
  const std::string empty = MakeH2Frame(NGHTTP2_CONTINUATION, 0, 1);
  Withstand([&] {
    for (int i = 0; i < 10; ++i) {
      RawClient client = Flood(head, [&](int) { return i % 2 == 0 ? more : empty; });
      ExpectCalmed(client);
    }
  });
  // By the ninth frame of a head or by the frames of the connection, whichever is seen first.
  EXPECT_EQ(Refused("head_size") + Refused("control_frames"), 10);
}

TEST_F(Http2AttackTest, AnnouncedSizesTakeNoMemory) {
  Serve();
  // A value of 1 GiB, by HPACK's integer: 127 and the rest in groups of 7 bits.
  const std::string value = std::string("\0\1x\x7f\x81\xff\xff\xff\3", 9);
  const std::string part(16'000, 'y');
  std::string header = MakeH2Frame(NGHTTP2_HEADERS, 0, 1, value + part);
  for (int i = 0; i < 8; ++i) header += MakeH2Frame(NGHTTP2_CONTINUATION, 0, 1, part);
  std::string frame = MakeH2Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1);
  frame.replace(0, 3, "\xff\xff\xff");  // a frame of 16 MiB
  Withstand([&] {
    for (int i = 0; i < 20; ++i) {
      RawClient client = OpenHttp2(port());
      client.Send((i % 2 == 0 ? header : frame) + std::string(1 << 20, 'y'));
      EXPECT_TRUE(client.AwaitEnd());
      EXPECT_TRUE(GoawayIn(client.received()).has_value());
    }
  });
  EXPECT_EQ(Refused("bad_protocol"), 20);
}

TEST_F(Http2AttackTest, BombsOfHpackAreCutShort) {
  Serve();
  // An entry of the dynamic table that is named 10,000 times.
  std::string block = MakeHeaderBlock(RequestFields("POST", kGenerate));
  block += std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'y');
  block += std::string(10'000, '\xbe');
  Withstand([&] {
    for (int i = 0; i < 50; ++i) {
      RawClient client = OpenHttp2(port());
      client.Send(MakeH2Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, block));
      ExpectCalmed(client, "header_fields_too_large");
    }
  });
  EXPECT_EQ(Refused("head_size"), 50);
}

// --- Streams ---

TEST_F(Http2AttackTest, RapidResetsEndTheConnection) {
  Serve();
  Withstand([&] {
    for (int run = 0; run < 10; ++run) {
      RawClient client = Flood(
          "", [](int i) { return MakeHealthCall(StreamOf(i), "Watch") + MakeReset(StreamOf(i)); });
      ExpectCalmed(client, "too_many_resets");
    }
  });
  EXPECT_EQ(Refused("resets"), 10);
}

TEST_F(Http2AttackTest, RapidResetsOfRealWorkEndTheConnectionToo) {
  Serve();
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  const std::string message = request.SerializeAsString();
  const HttpFields token = {{"authorization", std::string("Bearer ") + kToken}};
  Withstand([&] {
    for (int run = 0; run < 3; ++run) {
      RawClient client = Flood("", [&](int i) {
        return MakeCallHead(StreamOf(i), kGenerateStream, token) +
               MakeCallBody(StreamOf(i), message) + MakeReset(StreamOf(i));
      });
      ExpectCalmed(client, "too_many_resets");
    }
  });
  EXPECT_EQ(Refused("resets"), 3);
}

// MadeYouReset: errors of streams let the server reset them.
TEST_F(Http2AttackTest, ResetsThatTheServerIsMadeToSendEndTheConnection) {
  Serve();
  const std::string past_the_limit = BigEndian(0x7fffffff);
  Withstand([&] {
    for (int run = 0; run < 5; ++run) {
      RawClient client = Flood("", [&](int i) {
        return MakeCallHead(StreamOf(i), kWatch) +
               MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, StreamOf(i), past_the_limit);
      });
      ExpectCalmed(client, "too_many_resets");
    }
  });
  EXPECT_EQ(Refused("resets"), 5);
}

TEST_F(Http2AttackTest, StreamsPastTheLimitAreRefusedBeforeSettingsAreAcknowledged) {
  Serve();
  Withstand([&] {
    for (int run = 0; run < 5; ++run) {
      RawClient client = Flood("", [](int i) { return MakeHealthCall(StreamOf(i), "Watch"); });
      ExpectCalmed(client, "too_many_resets");
    }
  });
  EXPECT_EQ(Refused("resets"), 5);
  EXPECT_GE(Refused("streams"), 4500);
  EXPECT_LE(Refused("streams"), 10'000);
}

TEST_F(Http2AttackTest, TwentyThousandStreamsOfStrangersAreHeldCheaply) {
  constexpr int kConnections = 200, kStreams = 100;
  Serve();
  Withstand([&] {
    std::string calls;
    for (int i = 0; i < kStreams; ++i) calls += MakeHealthCall(StreamOf(i), "Watch");
    std::vector<RawClient> clients;
    for (int i = 0; i < kConnections; ++i) {
      clients.push_back(OpenHttp2(port()));
      clients.back().Send(calls);
    }
    for (RawClient& client : clients) {
      EXPECT_TRUE(client.Await([&](std::string_view received) {
        const std::vector<H2Frame> frames = FramesIn(received);
        return std::count_if(frames.begin(), frames.end(), [](const H2Frame& frame) {
                 return frame.type == NGHTTP2_DATA;
               }) >= kStreams;
      }));
    }
    absl::SleepFor(absl::Seconds(1));
    for (const RawClient& client : clients) EXPECT_TRUE(client.is_open());
  });
}

// Heads of 16 KiB cost the client four bytes of HPACK, and bodies need not end.
TEST_F(Http2AttackTest, HeadsAndBodiesOfManyStreamsTakeLittle) {
  constexpr int kConnections = 60, kPairs = 50;
  Serve();
  const auto call = [](int i, const char* method, const std::string& more) {
    HttpFields fields = RequestFields("POST", std::string("/grpc.health.v1.Health/") + method);
    fields.push_back({"content-type", "application/grpc"});
    return MakeH2Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, StreamOf(i),
                       MakeHeaderBlock(fields) + more);
  };
  // A field that enters the dynamic table, and its place there.
  const std::string field = std::string("\x40\x01x\x7f\xbd\x1d", 6) + std::string(3900, 'y');
  const std::string again(4, '\xbe');
  const std::string half_a_body =
      MakeH2Frame(NGHTTP2_DATA, 0, 0, MakePrefix(512) + std::string(511, 'x'));
  std::string calls;
  for (int i = 0; i < kPairs; ++i) {
    calls += call(2 * i, "Watch", i == 0 ? field : again) + MakeCallBody(StreamOf(2 * i), "");
    std::string body = half_a_body;
    body.replace(5, 4, BigEndian(StreamOf(2 * i + 1)));
    calls += call(2 * i + 1, "Check", again) + body;
  }
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < kConnections; ++i) {
      clients.push_back(OpenHttp2(port()));
      clients.back().Send(calls);
    }
    for (RawClient& client : clients) {
      EXPECT_TRUE(client.Await([&](std::string_view received) {
        const std::vector<H2Frame> frames = FramesIn(received);
        return std::count_if(frames.begin(), frames.end(), [](const H2Frame& frame) {
                 return frame.type == NGHTTP2_DATA;
               }) >= kPairs;
      }));
    }
    absl::SleepFor(absl::Seconds(1));
    for (const RawClient& client : clients) EXPECT_TRUE(client.is_open());
  });
  EXPECT_EQ(Refused("head_size"), 0);
}

// --- Frames that carry nothing ---

TEST_F(Http2AttackTest, FloodsOfFramesThatCarryNothingEndTheConnection) {
  Serve();
  const std::vector<std::pair<const char*, std::string>> floods = {
      {"SETTINGS", MakeH2Frame(NGHTTP2_SETTINGS, 0, 0)},
      {"PRIORITY", MakeH2Frame(NGHTTP2_PRIORITY, 0, 7, BigEndian(0) + "a")},
      {"WINDOW_UPDATE", MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(1))},
      {"empty DATA", MakeH2Frame(NGHTTP2_DATA, 0, 1)},
      {"unknown", MakeH2Frame(0x99, 0, 0, "abc")},
      {"PING with ACK", MakeH2Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "12345678")},
  };
  Withstand([&] {
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto& flood : floods) {
        SCOPED_TRACE(flood.first);
        RawClient client = Flood(MakeCallHead(1, kWatch), [&](int) { return flood.second; });
        ExpectCalmed(client, "too_many_control_frames");
      }
    }
  });
  EXPECT_EQ(Refused("control_frames"), 18);
}

TEST_F(Http2AttackTest, FloodsOfPingsEndTheConnection) {
  Serve();
  const std::string ping = MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678");
  Withstand([&] {
    for (int i = 0; i < 20; ++i) {
      RawClient flood = Flood("", [&](int) { return ping; });
      ExpectCalmed(flood);
      RawClient impatient = OpenHttp2(port());
      impatient.Send(ping + ping + ping + ping);
      ExpectCalmed(impatient, "too_many_pings");
    }
  });
  // A flood may end as one of frames that carry nothing.
  EXPECT_GE(Refused("pings"), 20);
  EXPECT_EQ(Refused("pings") + Refused("control_frames"), 40);
}

}  // namespace
}  // namespace lowkey
