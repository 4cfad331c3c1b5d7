#include "server/net/event_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lowkey {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventLoop> loop_ = *EventLoop::Start();
};

TEST_F(EventLoopTest, PostedWorkRunsInOrderOnOneThread) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 1000;
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> n_elsewhere = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        loop_->Post([&, t, i] {
          n_elsewhere += !loop_->IsThisThread();
          seen[t].push_back(i);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop_->PostAndWait([] {});
  EXPECT_FALSE(loop_->IsThisThread());
  EXPECT_EQ(n_elsewhere, 0);
  std::vector<int> expected;
  for (int i = 0; i < kPosts; ++i) expected.push_back(i);
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(seen[t], expected);
}

TEST_F(EventLoopTest, WorkPostedByWorkRunsAfterWhatWasPosted) {
  std::vector<int> seen;
  absl::Notification done;
  loop_->PostAndWait([&] {
    loop_->Post([&] { seen.push_back(1); });
    loop_->Post([&] {
      seen.push_back(2);
      loop_->Post([&] { done.Notify(); });
    });
  });
  done.WaitForNotification();
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

TEST_F(EventLoopTest, StopRunsWhatWasPostedAndNothingElse) {
  absl::Notification go_on;
  loop_->Post([&] { go_on.WaitForNotification(); });
  int n_run = 0;
  for (int i = 0; i < 100; ++i) loop_->Post([&] { ++n_run; });
  go_on.Notify();
  loop_->Stop();
  EXPECT_EQ(n_run, 100);

  const auto token = std::make_shared<int>(0);
  loop_->Post([&n_run, token] { ++n_run; });
  EXPECT_EQ(token.use_count(), 1);
  loop_->PostAndWait([&] { ++n_run; });
  EXPECT_EQ(n_run, 100);
  loop_->Stop();
}

TEST_F(EventLoopTest, WorkIsDestroyedOnceItHasRun) {
  const auto token = std::make_shared<int>(0);
  loop_->Post([token] {});
  loop_->PostAndWait([] {});
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(EventLoopTest, LackOfMemoryEndsOnlyTheWorkThatMeetsIt) {
  loop_->Post([] { throw std::bad_alloc(); });
  loop_->PostAndWait([] { throw std::bad_alloc(); });
  bool has_run = false;
  loop_->PostAndWait([&] { has_run = true; });
  EXPECT_TRUE(has_run);
}

TEST_F(EventLoopTest, EveryTicksOnTheLoopsThreadUntilTheEnd) {
  absl::Notification third;
  std::atomic<int> n_ticks = 0;
  const absl::Time begin = absl::Now();
  loop_->PostAndWait([&] {
    loop_->Every(absl::Milliseconds(1), [&](absl::Time now) {
      EXPECT_TRUE(loop_->IsThisThread());
      EXPECT_GE(now, begin);
      if (++n_ticks == 3) third.Notify();
      throw std::bad_alloc();  // ends one tick, not the next
    });
    loop_->Every(absl::Hours(1), [](absl::Time) { ADD_FAILURE(); });
  });
  third.WaitForNotification();
  loop_->Stop();
  const int n_at_end = n_ticks;
  absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(n_ticks, n_at_end);
}

TEST(EventLoopStartTest, LoopsAreIndependent) {
  const auto one = *EventLoop::Start();
  const auto two = *EventLoop::Start();
  one->PostAndWait([&] {
    EXPECT_FALSE(two->IsThisThread());
    two->PostAndWait([&] { EXPECT_FALSE(one->IsThisThread()); });
  });
}

}  // namespace
}  // namespace lowkey
