#include "server/log/line_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "server/config/terminal/signals.h"

namespace lowkey {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class LineLogTest : public ::testing::Test {
 protected:
  LineLogTest() {
    IgnoreBrokenPipes();
    EXPECT_EQ(pipe2(pipe_.data(), O_CLOEXEC), 0);
  }
  // The writing end stays open: a log's thread may still use it.
  ~LineLogTest() override { CloseReader(); }

  void CloseReader() {
    if (pipe_[0] >= 0) close(pipe_[0]);
    pipe_[0] = -1;
  }

  std::string Read(size_t n_bytes) const {
    std::string text(n_bytes, '\0');
    size_t n_read = 0;
    while (n_read < n_bytes) {
      const ssize_t n = read(pipe_[0], text.data() + n_read, n_bytes - n_read);
      if (n <= 0) break;
      n_read += static_cast<size_t>(n);
    }
    text.resize(n_read);
    return text;
  }

  std::array<int, 2> pipe_ = {-1, -1};
};

TEST_F(LineLogTest, WritesLinesInOrder) {
  LineLog log(pipe_[1]);
  log.Write("one");
  log.Write("two\nthree");
  EXPECT_EQ(Read(14), "one\ntwo three\n");
  EXPECT_TRUE(log.Flush(absl::InfiniteDuration()));
  EXPECT_EQ(log.n_dropped(), 0);
}

TEST_F(LineLogTest, CutsLongLinesBetweenCharacters) {
  LineLog log(pipe_[1]);
  std::string line = "x";
  for (int i = 0; i < 3000; ++i) line += "é";
  log.Write(line);
  const std::string text = Read(4096);
  EXPECT_THAT(text, StartsWith("xéé"));
  EXPECT_THAT(text, EndsWith("é\n"));
  EXPECT_EQ(text.size(), LineLog::kMaxLineBytes);
}

TEST_F(LineLogTest, NobodyWaitsForAPipeThatIsNotRead) {
  LineLog log(pipe_[1]);
  const int64_t n_lines = 4096;  // 16 MiB; the pipe and the queue take less
  for (int64_t i = 0; i < n_lines; ++i) log.Write(std::string(4000, 'x'));
  EXPECT_GT(log.n_dropped(), 0);
  EXPECT_LT(log.n_dropped(), n_lines);
  EXPECT_FALSE(log.Flush(absl::ZeroDuration()));
  // The log's end does not wait for a reader either.
}

TEST_F(LineLogTest, GoesOnWithoutAReader) {
  LineLog log(pipe_[1]);
  CloseReader();
  log.Write("one");
  log.Write("two");
  EXPECT_TRUE(log.Flush(absl::InfiniteDuration()));
  EXPECT_EQ(log.n_dropped(), 2);
}

TEST_F(LineLogTest, GoesOnWithoutADescriptor) {
  LineLog log(-1);
  log.Write("one");
  EXPECT_TRUE(log.Flush(absl::InfiniteDuration()));
  EXPECT_EQ(log.n_dropped(), 1);
}

}  // namespace
}  // namespace lowkey
