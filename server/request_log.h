#ifndef LOWKEY_SERVER_REQUEST_LOG_H_
#define LOWKEY_SERVER_REQUEST_LOG_H_

#include <cstdio>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/generation.h"

namespace lowkey {

struct RequestLogEntry {
  std::string method;  // "GenerateStream"; of a call without credentials, what it says itself
  std::string tenant;  // empty: there are none
  absl::Status status;
  absl::Duration duration;
  std::optional<GenerationResult> result;  // absent when the request was refused
};

// One JSON object per line. Never a prompt, never generated text.
std::string RequestLogLine(const RequestLogEntry& entry, absl::Time now);

// Thread-safe. Must not be called from the engine's thread: a full pipe would stop it.
class RequestLog {
 public:
  // `file` must outlive the log.
  explicit RequestLog(std::FILE* file) : file_(file) {}

  void Write(const RequestLogEntry& entry);

 private:
  absl::Mutex mutex_;
  std::FILE* const file_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_LOG_H_
