#ifndef LOWKEY_SERVER_REQUEST_LOG_H_
#define LOWKEY_SERVER_REQUEST_LOG_H_

#include <cstdio>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/request/generation.h"

namespace lowkey {

struct RequestLogEntry {
  std::string method;  // "GenerateStream"; unchecked text if the call was refused by credentials
  std::string tenant;  // empty: the server has no tenants
  absl::Status status;
  absl::Duration duration;
  std::optional<GenerationResult> result;  // absent when the request was refused
};

// Returns one line with a JSON object. A prompt or generated text never appears in the log.
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
