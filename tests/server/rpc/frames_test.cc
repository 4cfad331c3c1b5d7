#include "server/rpc/frames.h"

#include <gtest/gtest.h>

#include <vector>

namespace lowkey {
namespace {

std::string Framed(const std::string& message) { return RpcPrefix(message.size()) + message; }

// Reads bytes in two pieces; the error is the last one's.
absl::StatusOr<std::vector<std::string>> ReadInPieces(const std::string& bytes, size_t cut,
                                                      size_t limit) {
  RpcFrameReader reader(limit);
  std::vector<std::string> messages;
  for (std::string_view piece :
       {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
    while (!piece.empty()) {
      absl::StatusOr<std::optional<std::string>> message = reader.Take(piece);
      if (!message.ok()) return message.status();
      if (message->has_value()) messages.push_back(**message);
    }
  }
  EXPECT_FALSE(reader.is_within_message());
  return messages;
}

TEST(RpcFramesTest, PrefixHasTheLengthInFourBytes) {
  EXPECT_EQ(RpcPrefix(0), std::string(5, '\0'));
  EXPECT_EQ(RpcPrefix(0x01020384), std::string("\0\x01\x02\x03\x84", 5));
}

TEST(RpcFramesTest, MessagesAreTheSameWhereverBytesAreCut) {
  const std::vector<std::string> messages = {"abc", "", std::string(300, 'x'), ""};
  std::string bytes;
  for (const std::string& message : messages) bytes += Framed(message);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto read = ReadInPieces(bytes, cut, 300);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, messages) << cut;
  }
}

TEST(RpcFramesTest, SaysWhatItWaitsFor) {
  RpcFrameReader reader(100);
  EXPECT_FALSE(reader.is_within_message());
  const std::string framed = Framed("abcd");
  std::string_view bytes = std::string_view(framed).substr(0, 4);
  ASSERT_TRUE(reader.Take(bytes).ok());
  EXPECT_TRUE(bytes.empty());
  EXPECT_TRUE(reader.is_within_message());
  EXPECT_EQ(reader.expected_bytes(), std::nullopt);
  bytes = std::string_view(framed).substr(4, 3);
  ASSERT_TRUE(reader.Take(bytes).ok());
  EXPECT_EQ(reader.expected_bytes(), 4);
  bytes = std::string_view(framed).substr(7);
  EXPECT_EQ(reader.Take(bytes).value(), "abcd");
  EXPECT_FALSE(reader.is_within_message());
  EXPECT_EQ(reader.expected_bytes(), std::nullopt);
}

TEST(RpcFramesTest, RefusesALengthOverTheLimitBeforeTheMessage) {
  for (const size_t length : {size_t{11}, size_t{0xFFFFFFFF}}) {
    const std::string prefix = RpcPrefix(length);
    const auto read = ReadInPieces(prefix, 0, 10);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kResourceExhausted) << length;
  }
  EXPECT_TRUE(ReadInPieces(Framed(std::string(10, 'a')), 0, 10).ok());
}

TEST(RpcFramesTest, RefusesCompressedMessages) {
  for (const char flag : {'\x01', '\x80'}) {
    std::string bytes = Framed("abc");
    bytes[0] = flag;
    EXPECT_EQ(ReadInPieces(bytes, 1, 10).status().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace lowkey
