#include "engine/kernels/cuda/emulated/grid.h"

#include <algorithm>
#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey::emulated {
namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = size_t{128} << 10;

// Threads that wait for each other; a thread that has ended is not waited for.
struct Barrier {
  int n_live = 0;
  int n_waiting = 0;
  uint64_t n_passed = 0;

  void PassIfComplete() {
    if (n_waiting == 0 || n_waiting < n_live) return;
    n_waiting = 0;
    ++n_passed;
  }
};

struct Warp {
  Barrier barrier;
  std::byte given[32][16];
};

struct Copy {
  void* to;
  const void* from;
};

struct Thread {
  context::fiber fiber, caller;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copies;  // committed groups
  Index3 index;
  Barrier* waits_at = nullptr;
  uint64_t waits_for = 0;  // ends when the barrier's n_passed is larger
  bool has_ended = false;
};

struct Block {
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
};

std::atomic<ThreadOrder> thread_order{ThreadOrder::kForward};
thread_local Block* block = nullptr;
thread_local Thread* thread = nullptr;
thread_local std::vector<std::byte> dynamic_shared;
std::atomic<int64_t> most_shared_bytes = int64_t{227} << 10;

void WaitAt(Barrier& barrier) {
  Thread* const self = thread;
  self->waits_at = &barrier;
  self->waits_for = barrier.n_passed;
  ++barrier.n_waiting;
  barrier.PassIfComplete();
  self->caller = std::move(self->caller).resume();
}

bool IsReady(const Thread& t) {
  return !t.has_ended && (t.waits_at == nullptr || t.waits_at->n_passed > t.waits_for);
}

void End(Thread& t) {
  t.has_ended = true;
  for (Barrier* barrier : {&block->barrier, &block->warps[t.index.x / kWarp].barrier}) {
    --barrier->n_live;
    barrier->PassIfComplete();
  }
}

void Resume(Thread& t) {
  thread = &t;
  place.thread = t.index;
  t.waits_at = nullptr;
  t.fiber = std::move(t.fiber).resume();
}

std::vector<int> Order(int n_threads) {
  std::vector<int> order(n_threads);
  for (int i = 0; i < n_threads; ++i) order[i] = i;
  if (thread_order == ThreadOrder::kBackward) std::reverse(order.begin(), order.end());
  if (thread_order == ThreadOrder::kShuffled) {
    std::shuffle(order.begin(), order.end(), std::minstd_rand(7));
  }
  return order;
}

void RunBlock(const LaunchShape& shape, absl::FunctionRef<void()> body) {
  static thread_local context::pooled_fixedsize_stack stacks(kStackBytes);
  Block b;
  block = &b;
  b.barrier.n_live = shape.threads;
  b.warps.resize(shape.threads / kWarp);
  for (Warp& w : b.warps) w.barrier.n_live = kWarp;
  b.threads.resize(shape.threads);
  for (int i = 0; i < shape.threads; ++i) {
    Thread& t = b.threads[i];
    t.index.x = static_cast<unsigned>(i);
    t.fiber = context::fiber(std::allocator_arg, stacks, [&t, body](context::fiber&& caller) {
      t.caller = std::move(caller);
      body();
      End(t);
      return std::move(t.caller);
    });
  }
  const std::vector<int> order = Order(shape.threads);
  while (b.barrier.n_live > 0) {
    bool moved = false;
    for (int i : order) {
      if (!IsReady(b.threads[i])) continue;
      Resume(b.threads[i]);
      moved = true;
    }
    LK_CHECK(moved);  // else threads wait at different barriers
  }
  block = nullptr;
}

}  // namespace

thread_local Place place;

void SetThreadOrder(ThreadOrder order) { thread_order = order; }

std::byte* DynamicShared() { return dynamic_shared.data(); }
void SyncBlock() { WaitAt(block->barrier); }
void SyncWarp() { WaitAt(block->warps[place.thread.x / kWarp].barrier); }

void ExchangeInWarp(const void* give, int64_t size_bytes,
                    absl::FunctionRef<void(const std::byte (*lanes)[16])> take) {
  Warp& warp = block->warps[place.thread.x / kWarp];
  std::memcpy(warp.given[LaneIndex()], give, static_cast<size_t>(size_bytes));
  SyncWarp();
  take(warp.given);
  SyncWarp();
}

void BeginCopy(void* to, const void* from) { thread->open_copies.push_back({to, from}); }

void CommitCopies() { thread->copies.push_back(std::exchange(thread->open_copies, {})); }

void WaitCopies(int n) {
  auto& groups = thread->copies;
  for (; static_cast<int>(groups.size()) > n; groups.pop_front()) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, 16);
  }
}

void RunGrid(const LaunchShape& shape, absl::FunctionRef<void()> body) {
  LK_CHECK(shape.threads > 0 && shape.threads <= 1024 && shape.threads % kWarp == 0);
  LK_CHECK(shape.blocks_y <= 65535 && shape.blocks_z <= 65535);
  LK_CHECK(shape.shared_bytes <= most_shared_bytes);
  // Each launch gets new memory, so that an access past its end is seen.
  dynamic_shared = std::vector<std::byte>(shape.shared_bytes);
  place.block_dim = {static_cast<unsigned>(shape.threads), 1, 1};
  place.grid_dim = {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                    static_cast<unsigned>(shape.blocks_z)};
  for (unsigned z = 0; z < place.grid_dim.z; ++z) {
    for (unsigned y = 0; y < place.grid_dim.y; ++y) {
      for (unsigned x = 0; x < place.grid_dim.x; ++x) {
        place.block = {x, y, z};
        RunBlock(shape, body);
      }
    }
  }
}

void LimitShared(int64_t bytes) { most_shared_bytes = bytes; }
int64_t MostSharedBytes() { return most_shared_bytes; }

}  // namespace lowkey::emulated
