#include "engine/base/threads/short_turns.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

namespace lowkey {
namespace {

TEST(TakeShortTurns, LeavesPolicyAndNicenessAsTheyAre) {
  std::thread([] {
    const int policy = sched_getscheduler(0);
    const int nice = std::min(19, getpriority(PRIO_PROCESS, 0) + 3);
    ASSERT_EQ(setpriority(PRIO_PROCESS, 0, nice), 0);
    TakeShortTurns();
    EXPECT_EQ(sched_getscheduler(0), policy);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    const sched_param none = {};
    // A system may keep idle threads from it.
    if (sched_setscheduler(0, SCHED_BATCH, &none) != 0) return;
    TakeShortTurns();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace lowkey
