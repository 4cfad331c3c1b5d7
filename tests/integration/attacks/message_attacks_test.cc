// Messages that cost more than they look: compressed, announced, full of elements, never read.
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/attacks/attack_fixture.h"

namespace lowkey {
namespace {

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kGenerateStream[] = "/lowkey.v1.Generation/GenerateStream";
constexpr int kUnimplemented = 12, kInternal = 13, kInvalid = 3, kExhausted = 8;

using MessageAttackTest = AttackTest;

uint32_t StreamOf(int i) { return 2 * static_cast<uint32_t>(i) + 1; }

HttpFields WithToken(const std::string& token) {
  return {{"authorization", absl::StrCat("Bearer ", token)}};
}

// The beginning of a gzip file of zeros, which is 159 times as long as its n_bytes: one block with
// fixed codes (RFC 1951, 3.2.6), a zero and then matches of 258 bytes.
std::string MakeGzipBomb(size_t n_bytes) {
  constexpr char kBegin[] = "11000110000";    // last block, fixed codes, literal 0
  constexpr char kMatch[] = "1100010100000";  // length 258, distance 1
  constexpr size_t kBeginBits = sizeof(kBegin) - 1, kMatchBits = sizeof(kMatch) - 1;
  std::string bomb("\x1f\x8b\x08\0\0\0\0\0\0\3", 10);
  for (size_t bit = 0; bomb.size() < n_bytes;) {
    int byte = 0;
    for (int i = 0; i < 8; ++i, ++bit) {
      const char code = bit < kBeginBits ? kBegin[bit] : kMatch[(bit - kBeginBits) % kMatchBits];
      byte |= (code - '0') << i;
    }
    bomb.push_back(static_cast<char>(byte));
  }
  return bomb;
}

// DATA frames of at most 16 KiB.
std::string MakeDataFrames(uint32_t stream, std::string_view bytes) {
  constexpr size_t kFrameBytes = 16 << 10;
  std::string frames;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kFrameBytes, bytes.size()))) {
    frames += MakeH2Frame(NGHTTP2_DATA, 0, stream, bytes.substr(0, kFrameBytes));
  }
  return frames;
}

std::string AwaitStatus(RawClient& client, uint32_t stream) {
  client.Await([stream](std::string_view received) {
    return !FieldIn(received, stream, "grpc-status").empty();
  });
  return FieldIn(client.received(), stream, "grpc-status");
}

TEST_F(MessageAttackTest, CompressedMessagesAreRefusedUnread) {
  Serve();
  const std::string bomb = MakeGzipBomb(3'500'000);
  const std::string data =
      MakeDataFrames(1, MakePrefix(static_cast<uint32_t>(bomb.size()), 1) + bomb);
  v1::GenerateRequest request;
  request.set_text(std::string(32 << 20, 'x'));
  Withstand([&] {
    for (int i = 0; i < 5; ++i) {
      RawClient client = OpenHttp2(port());
      client.Send(MakeCallHead(1, kCheck, {{"grpc-encoding", "gzip"}}) + data);
      EXPECT_EQ(AwaitStatus(client, 1), absl::StrCat(kUnimplemented));
      EXPECT_EQ(FieldIn(client.received(), 1, "grpc-accept-encoding"), "identity");
    }
    const GoodClient::Answer answer =
        NewClient()->Generate(request, GoodClient::Compression::kGzip);
    EXPECT_EQ(answer.code, kUnimplemented) << answer.message;
  });
}

TEST_F(MessageAttackTest, CompressedFlagWithoutAnEncodingIsAnError) {
  Serve();
  const std::string bomb = MakeGzipBomb(3'500'000);
  Withstand([&] {
    for (int i = 0; i < 5; ++i) {
      RawClient client = OpenHttp2(port());
      client.Send(MakeCallHead(1, kCheck) +
                  MakeDataFrames(1, MakePrefix(static_cast<uint32_t>(bomb.size()), 1) + bomb));
      EXPECT_EQ(AwaitStatus(client, 1), absl::StrCat(kInternal));
    }
  });
}

TEST_F(MessageAttackTest, LengthsPastTheLimitAreRefusedByThePrefix) {
  Serve();
  Withstand([&] {
    for (const uint32_t n_bytes : {0xffffffffu, 0x80000000u, 0x7fffffffu, (4u << 20) + 1}) {
      RawClient client = OpenHttp2(port());
      client.Send(MakeCallHead(1, kCheck) + MakeDataFrames(1, MakePrefix(n_bytes)) +
                  MakeCallHead(3, kGenerateStream, WithToken(kToken)) +
                  MakeDataFrames(3, MakePrefix(n_bytes)));
      EXPECT_EQ(AwaitStatus(client, 1), absl::StrCat(kExhausted)) << n_bytes;
      EXPECT_EQ(AwaitStatus(client, 3), absl::StrCat(kExhausted)) << n_bytes;
    }
  });
  EXPECT_EQ(Refused("body_size"), 8);
}

// A stranger may call grpc.health.v1 alone, and must not take the memory for everyone's messages.
TEST_F(MessageAttackTest, AnnouncedMessagesOfStrangersTakeNothingFromOthers) {
  Serve();
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < 50; ++i) {
      clients.push_back(OpenHttp2(port()));
      for (int stream = 0; stream < 100; ++stream) {
        clients.back().Send(MakeCallHead(StreamOf(stream), kCheck) +
                            MakeDataFrames(StreamOf(stream), MakePrefix(4 << 20) + "x"));
      }
    }
    absl::SleepFor(absl::Seconds(1));
  });
  EXPECT_EQ(Refused("body_memory"), 0);
}

TEST_F(MessageAttackTest, MessagesFullOfNothingAreCountedBeforeTheyAreParsed) {
  Serve();
  v1::GenerateRequest request;
  request.set_text("Once");
  for (int i = 0; i < 2'000'000; ++i) request.add_stop("");  // 4 MB on the wire
  Withstand([&] {
    std::vector<std::future<GoodClient::Answer>> answers;
    for (int i = 0; i < 8; ++i) {
      answers.push_back(std::async(std::launch::async, [&] {
        return NewClient()->Generate(request, GoodClient::Compression::kNone);
      }));
    }
    for (auto& answer : answers) EXPECT_EQ(answer.get().code, kInvalid);
  });
  EXPECT_EQ(Refused("elements"), 8);
}

// --- Answers that nobody reads ---

TEST_F(MessageAttackTest, RequestsOfAClientThatNeverReadsStayWithIt) {
  constexpr absl::Duration kStopped = absl::Milliseconds(300);
  Serve();
  std::string gets, calls, pings = MakeH2Start() + MakeHealthCall(1, "Watch");
  for (int i = 0; i < 200'000; ++i) gets += "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  for (int i = 0; i < 100'000; ++i) calls += MakeHealthCall(StreamOf(i), "Check");
  for (int i = 0; i < 500'000; ++i) pings += MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678");
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < 4; ++i) {
      for (const std::string* bytes : {&gets, &calls, &pings}) {
        clients.emplace_back(port());
        clients.back().SendUnread(bytes == &calls ? MakeH2Start() + calls : *bytes, kStopped);
      }
    }
  });
}

TEST_F(MessageAttackTest, HundredsOfClientsThatNeverReadTakeLittle) {
  constexpr int kClients = 500;  // of two addresses
  Serve();
  std::string calls = MakeH2Start(), gets;
  for (int i = 0; i < 3000; ++i) calls += MakeHealthCall(StreamOf(i), "Check");
  for (int i = 0; i < 3000; ++i) gets += "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back(port(), 1 + i % 2);
      clients.back().SendUnread(i % 4 == 0 ? gets : calls, absl::Milliseconds(5));
    }
    absl::SleepFor(absl::Seconds(2));
  });
}

// The network thread reads and tokenizes small requests itself, but not a flood of them. All are
// refused after that, and fewer than may wait for a worker: no place of a good stream is taken.
TEST_F(MessageAttackTest, HundredsOfSmallGenerationsDelayNobody) {
  constexpr int kClients = 10, kCalls = 90;
  Serve();
  v1::GenerateRequest request;
  for (int i = 0; i < 200; ++i) request.mutable_text()->append("word ");
  request.set_max_new_tokens(1 << 20);  // past the context
  const std::string message = request.SerializeAsString();
  std::string calls = MakeH2Start();
  for (int i = 0; i < kCalls; ++i) {
    calls += MakeCallHead(StreamOf(i), "/lowkey.v1.Generation/Generate", WithToken(kToken)) +
             MakeCallBody(StreamOf(i), message);
  }
  Withstand([&] {
    std::vector<RawClient> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back(port());
      clients.back().SendUnread(calls, absl::Milliseconds(5));
    }
    absl::SleepFor(absl::Seconds(1));
  });
}

// The client opens no window for the answers, which therefore wait in the server.
TEST_F(MessageAttackTest, AnswersWithoutAWindowAreBounded) {
  constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  Serve();
  // file_containing_symbol: the answer holds whole files.
  const std::string symbol = "lowkey.v1.Generation";
  const std::string message = absl::StrCat("\x22", std::string(1, symbol.size()), symbol);
  const std::string ask = MakePrefix(static_cast<uint32_t>(message.size())) + message;
  const std::string no_window = MakeH2Frame(NGHTTP2_SETTINGS, 0, 0, std::string("\0\4\0\0\0\0", 6));
  std::string asks;
  for (int i = 0; i < 500; ++i) asks += ask;
  Withstand([&] {
    RawClient client = OpenHttp2(port());
    client.Send(no_window);
    for (int stream = 0; stream < 100 && client.is_open(); ++stream) {
      client.Send(MakeCallHead(StreamOf(stream), kReflection, WithToken(kToken)) +
                  MakeDataFrames(StreamOf(stream), asks));
    }
    absl::SleepFor(absl::Milliseconds(500));
  });
}

TEST_F(MessageAttackTest, StreamsWithoutAWindowPause) {
  Serve();
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.set_max_new_tokens(2000);
  request.set_ignore_eos(true);
  const std::string message = request.SerializeAsString();
  const std::string no_window = MakeH2Frame(NGHTTP2_SETTINGS, 0, 0, std::string("\0\4\0\0\0\0", 6));
  Withstand([&] {
    RawClient client = OpenHttp2(port());
    client.Send(no_window);
    for (int i = 0; i < 24; ++i) {
      client.Send(MakeCallHead(StreamOf(i), kGenerateStream, WithToken(kToken)) +
                  MakeCallBody(StreamOf(i), message));
    }
    absl::SleepFor(absl::Seconds(2));
    EXPECT_TRUE(client.is_open());
  });
}

}  // namespace
}  // namespace lowkey
