#ifndef LOWKEY_SERVER_TRACE_HTTP_POST_H_
#define LOWKEY_SERVER_TRACE_HTTP_POST_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lowkey {

struct HttpPostAnswer {
  int code = 0;
  std::string body;                           // at most kMaxPostAnswerBytes
  std::optional<absl::Duration> retry_after;  // the field in seconds, where the answer has one
};

inline constexpr size_t kMaxPostAnswerBytes = 64 << 10;

// Posts JSON to one URL and keeps the connection for the next time. Redirects are not followed, and
// no proxy is used. Not thread-safe.
class HttpPoster {
 public:
  // A post takes at most `timeout`. It ends early once `is_cancelled`, which is asked about once a
  // second and whenever data move, returns true.
  HttpPoster(std::string url, absl::Duration timeout, std::function<bool()> is_cancelled);
  ~HttpPoster();
  HttpPoster(const HttpPoster&) = delete;
  HttpPoster& operator=(const HttpPoster&) = delete;

  // UNAVAILABLE if there was no whole answer, with the reason.
  absl::StatusOr<HttpPostAnswer> Post(const std::string& json);

 private:
  struct Handle;

  const std::function<bool()> is_cancelled_;
  const std::unique_ptr<Handle> handle_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TRACE_HTTP_POST_H_
