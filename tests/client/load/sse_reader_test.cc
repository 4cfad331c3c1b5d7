#include "client/load/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lowkey {
namespace {

using ::testing::ElementsAre;

struct Read {
  std::vector<std::string> events;
  absl::Status status;
  bool is_done = false;
  int http_status = 0;
  std::string document;
};

Read InPieces(const std::string& bytes, size_t piece_bytes) {
  Read read;
  SseReader reader([&read](std::string_view data) { read.events.emplace_back(data); });
  for (size_t at = 0; at < bytes.size() && read.status.ok(); at += piece_bytes) {
    read.status = reader.Add(std::string_view(bytes).substr(at, piece_bytes));
  }
  read.is_done = reader.is_done();
  read.http_status = reader.http_status();
  read.document = reader.document();
  return read;
}

constexpr char kStream[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    "8\r\ndata: a\n\r\n1\r\n\n\r\n13\r\n:\n\ndata: b\n\ndata: c\r\n2\r\n\n\n\r\n0\r\n\r\n";

TEST(SseReaderTest, EventsAreTheSameHoweverTheBytesCome) {
  for (size_t n = 1; n <= sizeof(kStream); ++n) {
    const Read read = InPieces(kStream, n);
    EXPECT_TRUE(read.status.ok()) << n << read.status;
    EXPECT_THAT(read.events, ElementsAre("a", "b", "c")) << n;
    EXPECT_TRUE(read.is_done) << n;
  }
}

TEST(SseReaderTest, RefusalIsADocument) {
  const Read read = InPieces("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\n\r\n{...}", 3);
  EXPECT_EQ(read.http_status, 429);
  EXPECT_EQ(read.document, "{...}");
  EXPECT_TRUE(read.is_done);
  EXPECT_TRUE(read.events.empty());
}

TEST(SseReaderTest, OtherAnswersAreErrors) {
  EXPECT_FALSE(InPieces("SMTP\r\n\r\n", 4).status.ok());
  EXPECT_FALSE(InPieces("HTTP/1.1 200 OK\r\n\r\n", 4).status.ok());
  EXPECT_FALSE(
      InPieces("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 64).status.ok());
  EXPECT_FALSE(InPieces("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 64)
                   .status.ok());
}

}  // namespace
}  // namespace lowkey
