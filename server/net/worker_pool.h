#ifndef LOWKEY_SERVER_NET_WORKER_POOL_H_
#define LOWKEY_SERVER_NET_WORKER_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lowkey {

// Threads for whatever takes longer than an event loop may be kept: reading messages, tokenizing,
// writing conversations as prompts. Thread-safe.
class WorkerPool {
 public:
  // At most `max_waiting` pieces of work wait for a thread.
  WorkerPool(int n_threads, size_t max_waiting);
  ~WorkerPool();  // runs what waits, then ends the threads

  // Runs `work` on a thread of the pool, in the order of the calls. False, and nothing is run, when
  // too much waits already.
  bool Run(std::function<void()> work);

  // Waits until nothing runs or waits; at most until `deadline`.
  void AwaitIdle(absl::Time deadline);

  size_t n_waiting() const {
    absl::MutexLock lock(&mutex_);
    return waiting_.size() > n_free_ ? waiting_.size() - n_free_ : 0;
  }

 private:
  void Work();
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_ending_ || !waiting_.empty();
  }

  const size_t max_waiting_;
  mutable absl::Mutex mutex_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  // Threads that run nothing, whose next work does not count as waiting.
  size_t n_free_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_WORKER_POOL_H_
