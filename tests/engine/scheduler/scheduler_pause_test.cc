// Requests that are paused, or wait for files of their prefix.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/scheduler/scheduler_testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Scheduler, APausedRequestGetsNoRowsAndKeepsItsReservation) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 2), Request(2, 2)});
  Step(s);
  s.SetPaused(1, true);
  s.SetPaused(1, true);  // once more changes nothing
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 2, 1, true}));
  EXPECT_EQ(s.n_running(), 2);
  EXPECT_EQ(s.reserved_bytes(), 20);
  s.SetPaused(1, false);
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 2, 1, true}, ScheduledRows{2, 0, 3, 1, true}));
}

TEST(Scheduler, APausedPromptIsNotComputed) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 20), Request(2, 2)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 8, false}));
  s.SetPaused(1, true);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 0, 2, true}));
  s.SetPaused(1, false);
  EXPECT_EQ(Step(s).back(), (ScheduledRows{1, 0, 8, 7, false}));
}

TEST(Scheduler, AParkedRequestKeepsItsPlaceInTheLine) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 3, 1, 60), Request(2, 3, 1, 60), Request(3, 3, 1, 60)});
  s.Park(1);
  s.Park(1);
  s.Park(9);  // unknown
  EXPECT_EQ(s.n_waiting(), 2);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 0, 3, true}));
  s.Park(2);  // runs
  s.SetPaused(1, false);
  EXPECT_EQ(s.n_waiting(), 2);
  s.Remove(2);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 3, true}));
  s.Park(3);
  s.Remove(3);
  s.SetPaused(3, false);
  EXPECT_EQ(s.n_waiting(), 0);
  s.Remove(1);
  EXPECT_THAT(Step(s), IsEmpty());
  EXPECT_EQ(s.reserved_bytes(), 0);
}

TEST(Scheduler, PromptTokensOfParkedRequestsDoNotWait) {
  Scheduler::Options options = kOptions;
  options.max_waiting_prompt_tokens = 10;
  Scheduler s(options);
  Enqueue(s, {Request(1, 8)});
  EXPECT_FALSE(s.Enqueue(Request(2, 8)).ok());
  s.Park(1);
  Enqueue(s, {Request(2, 8)});
  s.SetPaused(1, false);
  EXPECT_FALSE(s.Enqueue(Request(3, 1)).ok());
  Step(s);
  Step(s);
  Enqueue(s, {Request(3, 8)});
}

TEST(Scheduler, PausedRequestsLeaveTheirPlacesAndTakeThemAgainBeforeThoseThatWait) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1, 3), Request(2, 1, 3), Request(3, 1, 2)});
  Step(s);
  s.SetPaused(1, true);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 0, 1, true}));
  s.SetPaused(1, false);
  s.FinishChoice(1, 0);
  EXPECT_EQ(Step(s).size(), 3u);  // those of 2: one place is free, 1 needs two
  s.FinishChoice(2, 0);
  EXPECT_EQ(Step(s).size(), 4u);  // two of each
  s.SetPaused(2, true);
  s.Remove(2);
  EXPECT_EQ(Step(s).size(), 3u);  // 3's prompt and 1
}

TEST(Scheduler, NothingButPausedRequestsIsAnEmptyBatch) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1)});
  Step(s);
  s.SetPaused(1, true);
  EXPECT_THAT(Step(s), IsEmpty());
  s.Remove(1);
  EXPECT_EQ(s.reserved_bytes(), 0);
}

}  // namespace
}  // namespace lowkey
