#ifndef LOWKEY_SERVER_API_CALLS_REQUEST_LINK_H_
#define LOWKEY_SERVER_API_CALLS_REQUEST_LINK_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/contained.h"
#include "server/text/text_service.h"

namespace lowkey {

// Hands a call's cancellation and resumption on to the engine's requests, also if they come before
// the requests' ids are known. Thread-safe. Must not be used from the engine's thread.
class RequestLink {
 public:
  explicit RequestLink(TextService& service) : service_(service) {}

  void Submitted(std::vector<RequestId> ids) noexcept {
    bool is_cancelled = false, is_resumed = false;
    {
      absl::MutexLock lock(&mutex_);
      ids_ = std::move(ids);
      is_cancelled = is_cancelled_;
      is_resumed = is_resumed_;
    }
    if (is_cancelled) RunInTheEnd([this] { Cancel(); });
    if (is_resumed) RunInTheEnd([this] { Resume(); });
  }

  bool is_cancelled() {
    absl::MutexLock lock(&mutex_);
    return is_cancelled_;
  }

  void Cancel() {
    Note(is_cancelled_);
    for (size_t i = 0; const std::optional<RequestId> id = IdAt(i); ++i) service_.Cancel(*id);
  }

  // Call this when the reader of a paused request has caught up.
  void Resume() {
    Note(is_resumed_);
    for (size_t i = 0; const std::optional<RequestId> id = IdAt(i); ++i) service_.Resume(*id);
  }

 private:
  void Note(bool& event) {
    absl::MutexLock lock(&mutex_);
    event = true;
  }
  std::optional<RequestId> IdAt(size_t i) {
    absl::MutexLock lock(&mutex_);
    return i < ids_.size() ? std::optional<RequestId>(ids_[i]) : std::nullopt;
  }

  TextService& service_;
  absl::Mutex mutex_;
  std::vector<RequestId> ids_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ = false, is_resumed_ = false;  // guarded by mutex_ too
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_CALLS_REQUEST_LINK_H_
