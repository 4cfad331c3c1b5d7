#include "engine/kernels/cuda/emulated/grid.h"

#include <algorithm>
#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
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
  // Two exchanges in turn: who gives to one has seen all lanes take from the one before the last.
  std::byte given[2][32][kMostExchanged];
  int n_exchanges[32] = {};  // of each lane
};

struct Copy {
  void* to;
  const void* from;
};

struct Thread {
  context::fiber fiber;            // while another one runs
  std::vector<Copy> copies;        // that are not made yet
  std::vector<size_t> group_ends;  // of the committed groups among them
  Index3 index;
  Barrier* waits_at = nullptr;
  uint64_t waits_for = 0;  // ends when the barrier's n_passed is larger
  bool has_ended = false;
};

struct Block {
  const std::vector<int>& order;  // in which threads take turns
  Barrier barrier = {};
  std::vector<Warp> warps = {};
  std::vector<Thread> threads = {};
  size_t turn = 0;                   // the place in `order` of the running thread
  context::fiber launcher = {};      // what goes on when all threads have ended
  context::fiber* leaves = nullptr;  // where the fiber that runs no more is kept
};

std::atomic<ThreadOrder> thread_order{ThreadOrder::kForward};
thread_local Block* block = nullptr;
thread_local Thread* thread = nullptr;
thread_local std::vector<std::byte> dynamic_shared;
std::atomic<int64_t> most_shared_bytes = int64_t{227} << 10;

bool IsReady(const Thread& t) {
  return !t.has_ended && (t.waits_at == nullptr || t.waits_at->n_passed > t.waits_for);
}

// Gives the turn to the next thread that does not wait, and returns its fiber.
context::fiber& Next() {
  const size_t n = block->order.size();
  for (size_t i = 1, turn = block->turn; i <= n; ++i) {
    turn = turn + 1 < n ? turn + 1 : 0;
    Thread& t = block->threads[block->order[turn]];
    if (!IsReady(t)) continue;
    block->turn = turn;
    thread = &t;
    place.thread = t.index;
    t.waits_at = nullptr;
    return t.fiber;
  }
  LK_CHECK(block->barrier.n_live == 0);  // else threads wait at different barriers
  return block->launcher;
}

// Runs `next` until the fiber that calls, which is kept in `self`, has its turn again.
void Switch(context::fiber& self, context::fiber& next) {
  block->leaves = &self;
  context::fiber left = std::move(next).resume();
  *block->leaves = std::move(left);
}

void WaitAt(Barrier& barrier) {
  Thread* const self = thread;
  self->waits_at = &barrier;
  self->waits_for = barrier.n_passed;
  ++barrier.n_waiting;
  barrier.PassIfComplete();
  context::fiber& next = Next();
  if (&next != &self->fiber) Switch(self->fiber, next);
}

// Returns the fiber that goes on.
context::fiber End(Thread& t) {
  t.has_ended = true;
  for (Barrier* barrier : {&block->barrier, &block->warps[t.index.x / kWarp].barrier}) {
    --barrier->n_live;
    barrier->PassIfComplete();
  }
  block->leaves = &t.fiber;
  return std::move(Next());
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

void RunBlock(const LaunchShape& shape, const std::vector<int>& order,
              absl::FunctionRef<void()> body) {
  static thread_local context::pooled_fixedsize_stack stacks(kStackBytes);
  Block b = {.order = order};
  block = &b;
  b.barrier.n_live = shape.threads;
  b.warps.resize(shape.threads / kWarp);
  for (Warp& w : b.warps) w.barrier.n_live = kWarp;
  b.threads.resize(shape.threads);
  for (int i = 0; i < shape.threads; ++i) {
    Thread& t = b.threads[i];
    t.index.x = static_cast<unsigned>(i);
    t.fiber = context::fiber(std::allocator_arg, stacks, [&t, body](context::fiber&& left) {
      *block->leaves = std::move(left);
      body();
      return End(t);
    });
  }
  b.turn = b.order.size() - 1;
  Switch(b.launcher, Next());
  block = nullptr;
}

}  // namespace

thread_local Place place;

void SetThreadOrder(ThreadOrder order) { thread_order = order; }

std::byte* DynamicShared() { return dynamic_shared.data(); }
void SyncBlock() { WaitAt(block->barrier); }
void SyncWarp() { WaitAt(block->warps[place.thread.x / kWarp].barrier); }

void ExchangeInWarp(const void* give, int64_t size_bytes,
                    absl::FunctionRef<void(const std::byte (*lanes)[kMostExchanged])> take) {
  Warp& warp = block->warps[place.thread.x / kWarp];
  std::byte(*const given)[kMostExchanged] = warp.given[warp.n_exchanges[LaneIndex()]++ % 2];
  std::memcpy(given[LaneIndex()], give, static_cast<size_t>(size_bytes));
  SyncWarp();
  take(given);
}

void BeginCopy(void* to, const void* from) { thread->copies.push_back({to, from}); }

void CommitCopies() { thread->group_ends.push_back(thread->copies.size()); }

void WaitCopies(int n) {
  std::vector<size_t>& ends = thread->group_ends;
  const size_t n_ending = ends.size() - std::min(ends.size(), static_cast<size_t>(n));
  if (n_ending == 0) return;
  const size_t n_copies = ends[n_ending - 1];
  std::vector<Copy>& copies = thread->copies;
  for (size_t i = 0; i < n_copies; ++i) std::memcpy(copies[i].to, copies[i].from, 16);
  copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(n_copies));
  ends.erase(ends.begin(), ends.begin() + static_cast<ptrdiff_t>(n_ending));
  for (size_t& end : ends) end -= n_copies;
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
  const std::vector<int> order = Order(shape.threads);
  for (unsigned z = 0; z < place.grid_dim.z; ++z) {
    for (unsigned y = 0; y < place.grid_dim.y; ++y) {
      for (unsigned x = 0; x < place.grid_dim.x; ++x) {
        place.block = {x, y, z};
        RunBlock(shape, order, body);
      }
    }
  }
}

void LimitShared(int64_t bytes) { most_shared_bytes = bytes; }
int64_t MostSharedBytes() { return most_shared_bytes; }

}  // namespace lowkey::emulated
