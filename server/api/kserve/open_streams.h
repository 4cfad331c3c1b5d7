#ifndef LOWKEY_SERVER_API_KSERVE_OPEN_STREAMS_H_
#define LOWKEY_SERVER_API_KSERVE_OPEN_STREAMS_H_

#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/contained.h"

namespace lowkey {

// The streams that a server that stops has to end, since their clients may leave them open without
// a request. Thread-safe.
class OpenStreams {
 public:
  // `tell` tells the stream that the server stops; it is called on any thread, once or more, until
  // the stream is removed.
  void Add(const void* stream, std::function<void()> tell) {
    const absl::MutexLock lock(&mutex_);
    if (is_stopped_) tell();
    streams_.emplace(stream, std::move(tell));
  }
  void Remove(const void* stream) {
    const absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }

  // Tells all streams, also those that come later.
  void Stop() {
    const absl::MutexLock lock(&mutex_);
    is_stopped_ = true;
    for (const auto& [stream, tell] : streams_) RunInTheEnd(tell);
  }

 private:
  absl::Mutex mutex_;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<const void*, std::function<void()>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_OPEN_STREAMS_H_
