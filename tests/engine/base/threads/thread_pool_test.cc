#include "engine/base/threads/thread_pool.h"

#include <array>
#include <atomic>
#include <new>
#include <stdexcept>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnceOnAThreadOfThePool) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.n_threads(), GetParam());
  for (int64_t n_tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(n_tasks);
    std::atomic<bool> thread_in_range{true};
    pool.ParallelFor(n_tasks, [&](int64_t task, int thread) {
      ++runs[task];
      if (thread < 0 || thread >= GetParam()) thread_in_range = false;
    });
    for (const auto& n : runs) ASSERT_EQ(n, 1);
    EXPECT_TRUE(thread_in_range);
  }
}

TEST_P(ThreadPoolTest, WritesAreVisibleAfterEachOfManyShortLoops) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(16, 0);  // plain: the loop's end must publish them
  for (int loop = 0; loop < 300; ++loop) {
    pool.ParallelFor(16, [&](int64_t task, int) { values[task] += task; });
  }
  for (int64_t task = 0; task < 16; ++task) EXPECT_EQ(values[task], 300 * task);
}

TEST_P(ThreadPoolTest, TwoTasksOfOneThreadNeverOverlap) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(GetParam());
  std::atomic<bool> overlapped{false};
  pool.ParallelFor(500, [&](int64_t, int thread) {
    if (++inside[thread] != 1) overlapped = true;
    --inside[thread];
  });
  EXPECT_FALSE(overlapped);
}

TEST_P(ThreadPoolTest, ThrowsWhatABodyThrewAndGoesOn) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 100; ++loop) {
    EXPECT_THROW(pool.ParallelFor(50,
                                  [&](int64_t task, int) {
                                    if (task == loop % 50) throw std::bad_alloc();
                                  }),
                 std::bad_alloc);
    std::atomic<int> n{0};
    pool.ParallelFor(50, [&](int64_t, int) { ++n; });
    EXPECT_EQ(n, 50);
  }
}

TEST_P(ThreadPoolTest, ThrowsOneExceptionWhereEveryThreadHasOne) {
  ThreadPool pool(GetParam());
  std::atomic<int> n_inside{0};
  const auto body = [&](int64_t, int) {
    ++n_inside;
    while (n_inside < GetParam()) std::this_thread::yield();  // until every thread has a task
    throw std::logic_error("one of many");
  };
  EXPECT_THROW(pool.ParallelFor(GetParam(), body), std::logic_error);
  pool.ParallelFor(8, [&](int64_t, int) { ++n_inside; });
  EXPECT_EQ(n_inside, GetParam() + 8);
}

TEST_P(ThreadPoolTest, RunsEachTaskOnceHoweverLateAWorkerComes) {
  ThreadPool pool(GetParam());
  // Workers come late to most of these loops: each must run its own tasks alone.
  for (int loop = 0; loop < 20000; ++loop) {
    std::array<std::atomic<int>, 2> runs{};
    pool.ParallelFor(2, [&](int64_t task, int) { ++runs[task]; });
    ASSERT_EQ(runs[0], 1);
    ASSERT_EQ(runs[1], 1);
  }
}

TEST_P(ThreadPoolTest, IsDestroyedWithoutHavingRunAnything) { ThreadPool pool(GetParam()); }

TEST_P(ThreadPoolTest, WakesUpAfterAPause) {
  ThreadPool pool(GetParam());
  std::atomic<int> n{0};
  pool.ParallelFor(8, [&](int64_t, int) { ++n; });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // long enough to fall asleep
  pool.ParallelFor(8, [&](int64_t, int) { ++n; });
  EXPECT_EQ(n, 16);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 5));

}  // namespace
}  // namespace lowkey
