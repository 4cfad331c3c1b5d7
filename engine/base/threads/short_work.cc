#include "engine/base/threads/short_work.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace lowkey {
namespace {

constexpr int64_t kLostCoreNs = 250'000;

std::atomic<int> n_held{0};
std::atomic<int64_t> changed_ns{0};  // the last time that n_held changed

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void NoteChange(int by) {
  changed_ns.store(NowNs(), std::memory_order_relaxed);
  n_held.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

ShortWork::ShortWork() { NoteChange(1); }

ShortWork::~ShortWork() { NoteChange(-1); }

bool GiveWay() {
  if (n_held.load(std::memory_order_relaxed) == 0) return false;
  thread_local int64_t yielded_for_ns = 0;
  const int64_t changed = changed_ns.load(std::memory_order_relaxed);
  if (changed == yielded_for_ns || NowNs() - changed < kLostCoreNs) return false;
  yielded_for_ns = changed;
  std::this_thread::yield();
  return true;
}

}  // namespace lowkey
