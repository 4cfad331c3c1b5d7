#ifndef LOWKEY_TESTS_SERVER_REQUEST_LOG_TEXT_H_
#define LOWKEY_TESTS_SERVER_REQUEST_LOG_TEXT_H_

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/log/line_log.h"
#include "server/log/request_log.h"

namespace lowkey {

// A log for the server of a test.
class RequestLogText {
 public:
  ~RequestLogText() { std::fclose(file_); }

  RequestLog* log() { return &log_; }

  // Returns all lines so far.
  std::string Text() {
    EXPECT_TRUE(lines_.Flush(absl::InfiniteDuration()));
    std::fseek(file_, 0, SEEK_END);
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    return text;
  }

 private:
  std::FILE* const file_ = std::tmpfile();
  LineLog lines_{fileno(file_)};
  RequestLog log_{lines_};
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_REQUEST_LOG_TEXT_H_
