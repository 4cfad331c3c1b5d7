// The fuzz target over mutations of good frames, always the same ones.

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/rpc/frames.h"
#include "tests/server/http/h2_client.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

constexpr int kEndStream = NGHTTP2_FLAG_END_STREAM, kEndHeaders = NGHTTP2_FLAG_END_HEADERS;

void RunTarget(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// A whole gRPC call with one message.
std::string MakeCall(uint32_t stream, std::string_view path, std::string_view message) {
  const HttpFields fields = {{"content-type", "application/grpc"}, {"te", "trailers"}};
  const std::string body = RpcPrefix(message.size()).append(message);
  return MakeH2Request(stream, kEndHeaders, fields, path) +
         MakeH2Frame(NGHTTP2_DATA, kEndStream, stream, body);
}

std::string SeedFrames() {
  return MakeH2Frame(NGHTTP2_SETTINGS, 0, 0, std::string("\0\4\0\0\x40\0", 6)) +
         MakeH2Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0) + MakeH2Request(1, kEndHeaders) +
         MakeH2Frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, std::string("\2abc\0\0", 6)) +
         MakeH2Request(3, 0) + MakeH2Frame(NGHTTP2_CONTINUATION, kEndHeaders, 3) +
         MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 1, BigEndian(100'000)) +
         MakeH2Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(100'000)) +
         MakeH2Frame(NGHTTP2_PING, 0, 0, "12345678") +
         MakeH2Frame(NGHTTP2_DATA, kEndStream, 1, std::string(500, 'x')) +
         MakeH2Frame(NGHTTP2_RST_STREAM, 0, 3, BigEndian(8)) +
         MakeH2Request(5, kEndHeaders | kEndStream) +
         MakeCall(7, "/grpc.health.v1.Health/Check", "") +
         MakeCall(9, "/grpc.health.v1.Health/Watch", "") +
         MakeCall(11, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                  "\"\x14lowkey.v1.Generation") +
         MakeCall(13, "/lowkey.v1.Generation/Generate", "\x1a\4Once");
}

TEST(Http2FuzzTest, AcceptsItsSeed) {
  for (int mode = 0; mode < 256; ++mode) {
    RunTarget(static_cast<char>(mode) + std::string("\0", 1) + SeedFrames());
    RunTarget(static_cast<char>(mode) + std::string("\xff") + SeedFrames());
  }
}

TEST(Http2FuzzTest, SurvivesTruncationAndFlippedBits) {
  const std::string seed = SeedFrames();
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = static_cast<char>(random()) + std::string(1, static_cast<char>(random()));
    text += seed.substr(0, random() % 3 == 0 ? random() % seed.size() : seed.size());
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % text.size();
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    }
    RunTarget(text);
  }
}

}  // namespace
}  // namespace lowkey
