#ifndef LOWKEY_SERVER_REQUEST_LOG_H_
#define LOWKEY_SERVER_REQUEST_LOG_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/line_log.h"
#include "server/request/generation.h"

namespace lowkey {

struct RequestLogEntry {
  std::string method;  // "GenerateStream"; unchecked text if the call was refused by credentials
  std::string tenant;  // empty: the server has no tenants
  absl::Status status;
  absl::Duration duration;
  std::optional<GenerationResult> result;  // absent when the request was refused
};

// Returns one line of under LineLog::kMaxLineBytes with a JSON object. A prompt or generated text
// never appears in the log; what an error message quotes is left out.
std::string RequestLogLine(const RequestLogEntry& entry, absl::Time now);

// Thread-safe; never waits.
class RequestLog {
 public:
  // `lines` must outlive the log.
  explicit RequestLog(LineLog& lines) : lines_(lines) {}

  void Write(const RequestLogEntry& entry) { lines_.Write(RequestLogLine(entry, absl::Now())); }

 private:
  LineLog& lines_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_LOG_H_
