#ifndef LOWKEY_SERVER_TRACE_OTLP_EXPORTER_H_
#define LOWKEY_SERVER_TRACE_OTLP_EXPORTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/trace/http_post.h"
#include "server/trace/request_spans.h"
#include "server/trace/span.h"

namespace lowkey {

struct OtlpOptions {
  std::string url;        // of OtlpTracesUrl
  double root_ratio = 1;  // the share of traces that begin here that is sampled, 0 to 1
  TraceResource resource;
  size_t max_queued = 2048;                      // requests
  size_t max_batch = 256;                        // requests in one message
  absl::Duration batch_time = absl::Seconds(1);  // a request waits so long for others
  absl::Duration post_timeout = absl::Seconds(10);
  // A message that the collector may take later is sent again, at growing intervals, for so long.
  absl::Duration retry_time = absl::Seconds(60);
  absl::Duration first_retry = absl::Seconds(1);
  absl::Duration longest_retry = absl::Seconds(15);
  absl::Duration last_flush = absl::Seconds(2);  // at the end
  // Receives a line for the log when posts begin to fail, and when they succeed again.
  std::function<void(const std::string&)> log = nullptr;
};

// Returns the URL that spans are posted to: `endpoint` with /v1/traces if it has no path, and as it
// is otherwise. Nullopt unless it begins with http:// or https:// and a host, and has no space,
// control character, user name, query or fragment.
std::optional<std::string> OtlpTracesUrl(const std::string& endpoint);

// The resource that describes this process.
TraceResource ThisProcess(const std::string& version);

// Sends the spans of ended requests to an OpenTelemetry collector, as OTLP's JSON over HTTP, from a
// thread of its own. Nobody ever waits for the collector: requests that find the queue full, and
// those that it does not take, are dropped and counted. Thread-safe.
class OtlpExporter {
 public:
  explicit OtlpExporter(OtlpOptions options);
  ~OtlpExporter();  // sends what is queued, for at most last_flush
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  double root_ratio() const { return options_.root_ratio; }

  // Queues the spans of a request, unless its trace is not sampled.
  void Add(TracedRequest request);

  // Spans that the collector has taken, and those that it has not or that were never sent.
  int64_t n_exported() const { return n_exported_; }
  int64_t n_dropped() const { return n_dropped_; }

 private:
  void Run();
  std::vector<TracedRequest> TakeBatch();
  void Send(const std::vector<TracedRequest>& batch);
  // Returns whether the message was taken or refused for good, so that it must not be sent again.
  bool IsSettled(const absl::StatusOr<HttpPostAnswer>& answer, int64_t n_spans);
  void NoteOutcome(const std::string& failure);  // empty: a success
  bool WaitToRetry(absl::Duration time);
  bool HasBatch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || queue_.size() >= options_.max_batch;
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_closing_ || !queue_.empty();
  }
  bool IsClosing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_closing_; }

  const OtlpOptions options_;
  std::atomic<int64_t> n_exported_{0}, n_dropped_{0};
  absl::Mutex mutex_;
  std::deque<TracedRequest> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> end_ns_;  // of SteadyNow, after which nothing is sent any more
  // Belong to the thread.
  HttpPoster poster_;
  bool is_failing_ = false;
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TRACE_OTLP_EXPORTER_H_
