#ifndef LOWKEY_ENGINE_SAMPLER_MASK_WORKER_H_
#define LOWKEY_ENGINE_SAMPLER_MASK_WORKER_H_

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lowkey {

// Runs small tasks on one thread of its own, in the order in which they were added, while the
// thread that adds them does something else. The thread starts with the first task. The two threads
// take turns with a task: between Add and Join only the worker touches what the task owns.
class MaskWorker {
 public:
  class Task {
   public:
    virtual ~Task() = default;

   private:
    friend class MaskWorker;
    // The worker drops an exception that this throws: the adder does the rest itself, and fails
    // where the task did.
    virtual void Run() = 0;
  };

  MaskWorker() = default;
  // No task may be left.
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Queues a task that is not queued.
  void Add(Task* task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes a task back that has not begun, and waits for one that has. Any other task is left alone.
  void Join(Task* task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  absl::CondVar added_, ended_;
  std::deque<Task*> queue_ ABSL_GUARDED_BY(mutex_);
  Task* running_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // of the adder
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_MASK_WORKER_H_
