#include "server/net/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"

namespace lowkey {
namespace {

TEST(WorkerPoolTest, OneThreadRunsWorkInOrder) {
  std::vector<int> seen;
  std::vector<int> expected;
  {
    WorkerPool pool(1, 1000);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(pool.Run([&seen, i] { seen.push_back(i); }));
      expected.push_back(i);
    }
  }
  EXPECT_EQ(seen, expected);
}

TEST(WorkerPoolTest, ThreadsWorkAtOnce) {
  WorkerPool pool(3, 0);
  // Passes only when all three are in it.
  auto* const barrier = new absl::Barrier(4);
  const auto meet = [barrier] {
    if (barrier->Block()) delete barrier;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Run(meet));
  meet();
}

TEST(WorkerPoolTest, NoMoreWaitsThanTheBound) {
  absl::Notification begun, go_on;
  int n_run = 0;
  {
    WorkerPool pool(1, 2);
    ASSERT_TRUE(pool.Run([&] {
      begun.Notify();
      go_on.WaitForNotification();
    }));
    begun.WaitForNotification();
    EXPECT_TRUE(pool.Run([&] { ++n_run; }));
    EXPECT_TRUE(pool.Run([&] { ++n_run; }));
    EXPECT_FALSE(pool.Run([&] { n_run += 100; }));
    go_on.Notify();
  }
  EXPECT_EQ(n_run, 2);
}

TEST(WorkerPoolTest, RefusedWorkLeavesRoomOnceSomethingHasRun) {
  WorkerPool pool(1, 1);
  absl::Notification begun, go_on, second;
  ASSERT_TRUE(pool.Run([&] {
    begun.Notify();
    go_on.WaitForNotification();
  }));
  begun.WaitForNotification();
  ASSERT_TRUE(pool.Run([&] { second.Notify(); }));
  EXPECT_FALSE(pool.Run([] {}));
  go_on.Notify();
  second.WaitForNotification();
  EXPECT_TRUE(pool.Run([] {}));
}

TEST(WorkerPoolTest, WorkThatWaitsIsCounted) {
  absl::Notification begun, release;
  WorkerPool pool(1, 10);
  EXPECT_EQ(pool.n_waiting(), 0u);
  EXPECT_TRUE(pool.Run([&] {
    begun.Notify();
    release.WaitForNotification();
  }));
  begun.WaitForNotification();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Run([] {}));
  EXPECT_EQ(pool.n_waiting(), 3u);
  release.Notify();
}

TEST(WorkerPoolTest, DestructionRunsWhatWaits) {
  std::atomic<int> n_run = 0;
  const auto token = std::make_shared<int>(0);
  absl::Notification go_on;
  {
    WorkerPool pool(2, 100);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool.Run([&] { go_on.WaitForNotification(); }));
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(pool.Run([&n_run, token] { ++n_run; }));
    go_on.Notify();
  }
  EXPECT_EQ(n_run, 100);
  EXPECT_EQ(token.use_count(), 1);
}

TEST(WorkerPoolTest, WaitsUntilNothingRuns) {
  WorkerPool pool(2, 100);
  absl::Notification go_on;
  std::atomic<int> n_run = 0;
  EXPECT_TRUE(pool.Run([&] { go_on.WaitForNotification(); }));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(pool.Run([&n_run] { ++n_run; }));
  pool.AwaitIdle(absl::Now() + absl::Milliseconds(1));  // the first one still runs
  go_on.Notify();
  pool.AwaitIdle(absl::InfiniteFuture());
  EXPECT_EQ(n_run, 10);
}

TEST(WorkerPoolTest, LackOfMemoryEndsOnlyTheWorkThatMeetsIt) {
  bool has_run = false;
  {
    WorkerPool pool(1, 2);
    EXPECT_TRUE(pool.Run([] { throw std::bad_alloc(); }));
    EXPECT_TRUE(pool.Run([&] { has_run = true; }));
  }
  EXPECT_TRUE(has_run);
}

}  // namespace
}  // namespace lowkey
