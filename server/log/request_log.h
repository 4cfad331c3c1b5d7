#ifndef LOWKEY_SERVER_LOG_REQUEST_LOG_H_
#define LOWKEY_SERVER_LOG_REQUEST_LOG_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"
#include "server/log/line_log.h"
#include "server/request/generation.h"
#include "server/request/trace_context.h"

namespace lowkey {

class OtlpExporter;

struct RequestLogEntry {
  std::string method;  // "GenerateStream"; unchecked text if the call was refused by credentials
  std::string tenant;  // empty: the server has no tenants
  absl::Status status;
  absl::Duration duration = absl::ZeroDuration();
  std::optional<GenerationResult> result = {};  // absent when the request was refused
  std::string request_id = {};             // where there is no result; empty: the call has none
  std::optional<TraceContext> trace = {};  // the caller's (ReadTraceContext), where it sent one
  absl::Time ended = DateNow();            // a date
};

// Returns one line of under LineLog::kMaxLineBytes with a JSON object. A prompt or generated text
// never appears in the log; what an error message quotes is left out. `trace_id` is absent where
// the request belongs to no trace.
std::string RequestLogLine(const RequestLogEntry& entry,
                           const std::optional<TraceId>& trace_id = {});

// Tells of requests that have ended: a line each in the log, a span each in their traces.
// Thread-safe; never waits.
class RequestLog {
 public:
  // `lines` must outlive the log.
  explicit RequestLog(LineLog& lines) : lines_(&lines) {}
  // Null: no lines, or no spans. Both must outlive the log.
  RequestLog(LineLog* lines, OtlpExporter* spans) : lines_(lines), spans_(spans) {}

  void Write(const RequestLogEntry& entry);

  // Writes a line about a call that has no span: one that generates and scores nothing, or one that
  // the credentials did not let in, as strangers must not fill the collector.
  void WriteWithoutSpan(const RequestLogEntry& entry);

 private:
  void WriteLine(const RequestLogEntry& entry, const std::optional<TraceId>& trace_id);

  LineLog* const lines_;
  OtlpExporter* const spans_ = nullptr;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_LOG_REQUEST_LOG_H_
