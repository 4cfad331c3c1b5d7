#ifndef LOWKEY_SERVER_API_CALLS_LIVE_CALLS_H_
#define LOWKEY_SERVER_API_CALLS_LIVE_CALLS_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"

namespace lowkey {

// Counts the admitted generations and scorings that a client still waits for: the engine may have
// finished one whose last tokens are on their way to a slow reader. Thread-safe.
class LiveCalls {
 public:
  // A call counts for as long as this object lives.
  class Call {
   public:
    explicit Call(std::shared_ptr<LiveCalls> owner) : owner_(std::move(owner)) { owner_->Add(1); }
    ~Call() { owner_->Add(-1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const std::shared_ptr<LiveCalls> owner_;
  };

  // Returns true if no call was left at some moment before `deadline`.
  bool AwaitNone(absl::Time deadline) {
    const auto none = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return n_ == 0; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&none), TimeUntil(deadline));
  }

 private:
  void Add(int n) {
    absl::MutexLock lock(&mutex_);
    n_ += n;
  }

  absl::Mutex mutex_;
  int n_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_CALLS_LIVE_CALLS_H_
