#ifndef LOWKEY_ENGINE_BASE_THREADS_THREAD_POOL_H_
#define LOWKEY_ENGINE_BASE_THREADS_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace lowkey {

// Runs loops on a fixed set of threads, the caller among them. One loop at a time; a loop body must
// not start another loop on the same pool. Which thread runs which index is not defined, so a
// body's result must depend on its index alone.
class ThreadPool {
 public:
  // n_threads >= 1 counts the calling thread.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, n_tasks), 0 <= thread < n_threads(); returns
  // when all are done. Every thread starts with a run of neighboring tasks, in order, and then
  // takes the second half of another thread's run. An exception in a body ends the loop: tasks that
  // have not begun are left out, and the first exception is thrown here. n_tasks < 2^32.
  void ParallelFor(int64_t n_tasks, absl::FunctionRef<void(int64_t task, int thread)> body);

 private:
  // A worker's part in a loop. The caller opens the loop to every worker, and closes it, once no
  // task is left, to those that did not come: it does not wait for a thread that another program
  // keeps from its core.
  enum class Stage : uint64_t { kOpen, kEntered, kDone, kClosed };

  struct alignas(64) Run {
    // The tasks [begin, end) that a thread has yet to start, as begin << 32 | end.
    std::atomic<uint64_t> tasks{0};
    std::atomic<uint64_t> stage{0};  // of a loop: epoch << 2 | Stage
  };

  void Work(int thread);
  void RunTasks(int thread);
  // Moves half of another thread's run to that of `thread`; false when no task is left.
  bool Steal(int thread);
  // Waits until a worker that entered the loop has left it; the others find it closed.
  void CloseTo(int thread, uint64_t epoch);

  std::vector<std::thread> threads_;
  absl::Mutex mutex_;
  absl::CondVar wake_;
  int64_t sleepers_ ABSL_GUARDED_BY(mutex_) = 0;

  // The number of loops begun. Only a worker whose stage is kEntered uses the fields below, and the
  // caller waits for those.
  std::atomic<uint64_t> epoch_{0};
  std::atomic<bool> stopping_{false};
  const absl::FunctionRef<void(int64_t, int)>* body_ = nullptr;
  std::vector<Run> runs_;      // by thread
  std::exception_ptr thrown_;  // the loop's first exception; threads in the loop hold mutex_
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_THREADS_THREAD_POOL_H_
