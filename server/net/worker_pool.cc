#include "server/net/worker_pool.h"

#include <functional>
#include <system_error>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "engine/base/threads/short_turns.h"
#include "engine/base/threads/short_work.h"

namespace lowkey {

WorkerPool::WorkerPool(int n_threads, size_t max_waiting) : max_waiting_(max_waiting) {
  try {
    for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {
    LK_CHECK(!threads_.empty());  // fewer threads will do
  }
  absl::MutexLock lock(&mutex_);
  n_free_ += threads_.size();
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Run(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (waiting_.size() >= max_waiting_ + n_free_) return false;
  waiting_.push_back(std::move(work));
  return true;
}

void WorkerPool::AwaitIdle(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto is_idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_.empty() && n_free_ == threads_.size();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&is_idle), TimeUntil(deadline));
}

void WorkerPool::Work() {
  TakeShortTurns();  // strangers wait for their refusals
  for (;;) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WorkerPool::HasNews));
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
      --n_free_;
    }
    {
      const ShortWork short_work;
      RunContained(work);
      work = nullptr;
    }
    absl::MutexLock lock(&mutex_);
    ++n_free_;
  }
}

}  // namespace lowkey
