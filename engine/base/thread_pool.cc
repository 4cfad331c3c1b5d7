#include "engine/base/thread_pool.h"

#include <chrono>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// A step has tens of loops a few microseconds apart: workers spin this long before they sleep, so
// that an idle server uses no CPU and a busy one pays no wake-up.
constexpr auto kSpin = std::chrono::microseconds(200);

inline void Pause() { __builtin_ia32_pause(); }

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  LK_CHECK(n_threads >= 1);
  for (int i = 1; i < n_threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_.store(true);
    epoch_.fetch_add(1, std::memory_order_release);
    wake_.SignalAll();
  }
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::ParallelFor(int64_t n_tasks,
                             absl::FunctionRef<void(int64_t task, int thread)> body) {
  if (threads_.empty() || n_tasks <= 1) {
    for (int64_t i = 0; i < n_tasks; ++i) body(i, 0);
    return;
  }
  body_ = &body;
  n_tasks_ = n_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  workers_left_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mutex_);
    epoch_.fetch_add(1, std::memory_order_release);
    if (sleepers_ > 0) wake_.SignalAll();
  }
  RunTasks(0);
  for (int spins = 0; workers_left_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < 1000) {
      Pause();
    } else {
      std::this_thread::yield();  // more threads than cores: let the worker run
    }
  }
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::RunTasks(int thread) {
  try {
    for (int64_t i; (i = next_task_.fetch_add(1, std::memory_order_relaxed)) < n_tasks_;) {
      (*body_)(i, thread);
    }
  } catch (...) {
    next_task_.store(n_tasks_, std::memory_order_relaxed);
    absl::MutexLock lock(&mutex_);
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    const auto spin_end = std::chrono::steady_clock::now() + kSpin;
    while (epoch_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < spin_end) {
      Pause();
    }
    if (epoch_.load(std::memory_order_acquire) == seen) {
      absl::MutexLock lock(&mutex_);
      ++sleepers_;
      while (epoch_.load(std::memory_order_acquire) == seen) wake_.Wait(&mutex_);
      --sleepers_;
    }
    ++seen;
    if (stopping_.load()) return;
    RunTasks(thread);
    workers_left_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace lowkey
