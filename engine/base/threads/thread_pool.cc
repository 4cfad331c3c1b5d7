#include "engine/base/threads/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/base/threads/short_work.h"

namespace lowkey {
namespace {

// A step has tens of loops a few microseconds apart: workers spin this long before they sleep, so
// that an idle server uses no CPU and a busy server pays for no wake-up.
constexpr auto kSpin = std::chrono::microseconds(200);

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr uint64_t Tasks(uint64_t begin, uint64_t end) { return begin << 32 | end; }
constexpr uint64_t Begin(uint64_t tasks) { return tasks >> 32; }
constexpr uint64_t End(uint64_t tasks) { return tasks & 0xffffffff; }

template <typename Stage>
constexpr uint64_t At(uint64_t epoch, Stage stage) {
  return epoch << 2 | static_cast<uint64_t>(stage);
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : runs_(std::max(n_threads, 1)) {
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
    for (int64_t i = 0; i < n_tasks; ++i) {
      body(i, 0);
      GiveWay();
    }
    return;
  }
  body_ = &body;
  LK_CHECK(n_tasks <= std::numeric_limits<uint32_t>::max());
  for (int64_t i = 0; i < n_threads(); ++i) {
    runs_[i].tasks.store(Tasks(n_tasks * i / n_threads(), n_tasks * (i + 1) / n_threads()),
                         std::memory_order_relaxed);
  }
  const uint64_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  for (int i = 1; i < n_threads(); ++i) {
    runs_[i].stage.store(At(epoch, Stage::kOpen), std::memory_order_release);
  }
  {
    absl::MutexLock lock(&mutex_);
    epoch_.store(epoch, std::memory_order_release);
    if (sleepers_ > 0) wake_.SignalAll();
  }
  RunTasks(0);
  for (int i = 1; i < n_threads(); ++i) CloseTo(i, epoch);
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::CloseTo(int thread, uint64_t epoch) {
  std::atomic<uint64_t>& stage = runs_[thread].stage;
  uint64_t open = At(epoch, Stage::kOpen);
  const uint64_t closed = At(epoch, Stage::kClosed);
  if (stage.compare_exchange_strong(open, closed, std::memory_order_relaxed)) return;
  const uint64_t done = At(epoch, Stage::kDone);
  for (int spins = 0; stage.load(std::memory_order_acquire) != done; ++spins) {
    if (spins < 1000) {
      Pause();
    } else {
      std::this_thread::yield();  // more threads than cores: let the worker run
    }
  }
}

void ThreadPool::RunTasks(int thread) {
  std::atomic<uint64_t>& own = runs_[thread].tasks;
  try {
    do {
      uint64_t tasks = own.load(std::memory_order_relaxed);
      while (Begin(tasks) < End(tasks)) {
        if (own.compare_exchange_weak(tasks, Tasks(Begin(tasks) + 1, End(tasks)),
                                      std::memory_order_relaxed)) {
          (*body_)(static_cast<int64_t>(Begin(tasks)), thread);
          GiveWay();
          tasks = own.load(std::memory_order_relaxed);
        }
      }
    } while (Steal(thread));
  } catch (...) {
    for (Run& run : runs_) run.tasks.store(Tasks(0, 0), std::memory_order_relaxed);
    absl::MutexLock lock(&mutex_);
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
}

bool ThreadPool::Steal(int thread) {
  for (int i = 1; i < n_threads(); ++i) {
    std::atomic<uint64_t>& other = runs_[(thread + i) % n_threads()].tasks;
    uint64_t tasks = other.load(std::memory_order_relaxed);
    while (Begin(tasks) < End(tasks)) {
      const uint64_t middle = (Begin(tasks) + End(tasks)) / 2;  // a single task is taken whole
      if (other.compare_exchange_weak(tasks, Tasks(Begin(tasks), middle),
                                      std::memory_order_relaxed)) {
        runs_[thread].tasks.store(Tasks(middle, End(tasks)), std::memory_order_relaxed);
        return true;
      }
    }
  }
  return false;
}

void ThreadPool::Work(int thread) {
  std::atomic<uint64_t>& stage = runs_[thread].stage;
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
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    uint64_t open = At(seen, Stage::kOpen);
    const uint64_t entered = At(seen, Stage::kEntered);
    if (!stage.compare_exchange_strong(open, entered, std::memory_order_acquire)) continue;
    RunTasks(thread);
    stage.store(At(seen, Stage::kDone), std::memory_order_release);
  }
}

}  // namespace lowkey
