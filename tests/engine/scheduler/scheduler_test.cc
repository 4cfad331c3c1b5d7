#include "engine/scheduler/scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/scheduler/scheduler_testing.h"

namespace lowkey {

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Scheduler, NothingToDoIsAnEmptyBatch) {
  Scheduler s(kOptions);
  EXPECT_THAT(s.NextBatch().rows, IsEmpty());
  EXPECT_EQ(s.n_waiting(), 0);
  EXPECT_EQ(s.n_running(), 0);
}

TEST(Scheduler, WhoLosesAStepBeginsOnceMoreAndRowsTakenOutOfABatchComeBack) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 3), Request(2, 4)});
  Step(s);
  for (uint64_t id : {1, 2}) s.Preempt(id);
  EXPECT_EQ(s.n_waiting(), 2);
  EXPECT_EQ(s.reserved_bytes(), 0);
  EXPECT_EQ(s.n_preemptions(), 2);
  ScheduledBatch batch = s.NextBatch();
  EXPECT_THAT(batch.rows, ElementsAre(ScheduledRows{1, 0, 0, 3}, ScheduledRows{2, 0, 0, 4}));
  batch.rows.pop_back();
  s.Commit(batch);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 3, 1, true}, ScheduledRows{2, 0, 0, 4}));
}

TEST(Scheduler, PromptIsComputedThenDecodedRowByRow) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 5)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 5, true}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 5, 1, true}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 6, 1, true}));
}

TEST(Scheduler, LongPromptIsCutToTheBudgetAndSamplesAtItsEndOnly) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 18)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 8, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 8, 8, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 16, 2, true}));
}

TEST(Scheduler, NoStepComputesBothSidesOfAStop) {
  Scheduler s(kOptions);
  SchedulerRequest r = Request(1, 18);
  r.prompt_stops = {3, 8, 17};
  Enqueue(s, {r});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 3, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 3, 5, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 8, 8, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 16, 1, false}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 17, 1, true}));
}

TEST(Scheduler, PromptOfExactlyTheBudgetSamplesAtOnce) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 8)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 8, true}));
}

TEST(Scheduler, BatchNotCommittedIsOfferedAgain) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 5)});
  const std::vector<ScheduledRows> first = s.NextBatch().rows;
  EXPECT_EQ(s.NextBatch().rows, first);
}

// Tokens are read a step later: the batch is committed before anybody knows them.
TEST(Scheduler, ThereAreNoRowsPastTheLastTokenThoughItIsNotKnown) {
  Scheduler s(kOptions);
  SchedulerRequest two = Request(1, 3), none = Request(2, 2);
  two.max_new_tokens = 2;
  none.max_new_tokens = 0;
  Enqueue(s, {two, none});
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 0, 3, true}, ScheduledRows{2, 0, 0, 2, true}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 3, 1, true}));
  EXPECT_THAT(Step(s), IsEmpty());
  s.Preempt(1);  // nor are rows computed again whose last token is on its way
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 3, false}));
  EXPECT_THAT(Step(s), IsEmpty());
}

TEST(Scheduler, ARowOfAChoiceThatFinishedMeanwhileDoesNoHarm) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 2, 2)});
  Step(s);
  const ScheduledBatch batch = s.NextBatch();
  EXPECT_THAT(batch.rows,
              ElementsAre(ScheduledRows{1, 0, 2, 1, true}, ScheduledRows{1, 1, 2, 1, true}));
  s.FinishChoice(1, 0);
  s.Commit(batch);
  s.Preempt(1);
  Step(s);  // the prompt, which both need
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 1, 2, 2, true}));
}

TEST(Scheduler, PromptChunksBesideDecodeRowsKeepToTheMixedBudget) {
  Scheduler s({100, 4, 1000, 3, 5});
  Enqueue(s, {Request(1, 2), Request(2, 2)});
  Step(s);
  Enqueue(s, {Request(3, 300)});
  const auto batch = [&](int64_t max_mixed_rows) { return s.NextBatch(max_mixed_rows).rows; };
  EXPECT_THAT(batch(40),
              ElementsAre(ScheduledRows{1, 0, 2, 1, true}, ScheduledRows{2, 0, 2, 1, true},
                          ScheduledRows{3, 0, 0, 38, false}));
  EXPECT_EQ(batch(1000).back().n_rows, 98);  // the step's own budget
  EXPECT_EQ(batch(3).back().n_rows, 5);      // prompts never starve
  s.Remove(1);
  s.Remove(2);
  EXPECT_EQ(batch(40).back().n_rows, 100);  // nobody waits
}

TEST(Scheduler, DecodeRowsComeBeforePromptChunks) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 2), Request(2, 20), Request(3, 3)});
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 0, 2, true}, ScheduledRows{2, 0, 0, 6, false}));
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 2, 1, true}, ScheduledRows{2, 0, 6, 7, false}));
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 3, 1, true}, ScheduledRows{2, 0, 13, 7, true}));
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 4, 1, true}, ScheduledRows{2, 0, 20, 1, true},
                          ScheduledRows{3, 0, 0, 3, true}));
}

TEST(Scheduler, ChoicesDecodeAfterOneSharedPrompt) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 3, 3)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 0, 3, true}));
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 3, 1, true}, ScheduledRows{1, 1, 3, 1, true},
                                   ScheduledRows{1, 2, 3, 1, true}));
  s.FinishChoice(1, 1);
  s.FinishChoice(1, 1);  // once more changes nothing
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{1, 0, 4, 1, true}, ScheduledRows{1, 2, 4, 1, true}));
}

TEST(Scheduler, AdmitsInOrderWhileReservationsFit) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1, 1, 60), Request(2, 1, 1, 50), Request(3, 1, 1, 10)});
  Step(s);
  EXPECT_EQ(s.n_running(), 1);  // 2 does not fit, and 3 does not pass it
  EXPECT_EQ(s.reserved_bytes(), 60);
  EXPECT_EQ(s.n_waiting(), 2);
  s.Remove(1);
  Step(s);
  EXPECT_EQ(s.n_running(), 2);
  EXPECT_EQ(s.reserved_bytes(), 60);
}

TEST(Scheduler, AdmitsWhileChoicesFitTheRunningSet) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1, 3), Request(2, 1, 2), Request(3, 1, 1)});
  Step(s);
  EXPECT_EQ(s.n_running(), 1);
  s.FinishChoice(1, 0);  // its place is free, its reservation is not
  EXPECT_EQ(s.reserved_bytes(), 10);
  Step(s);
  EXPECT_EQ(s.n_running(), 2);
  s.FinishChoice(1, 1);
  Step(s);
  EXPECT_EQ(s.n_running(), 3);
}

TEST(Scheduler, ReservationOfTheWholeCacheIsAdmitted) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1, 1, 100)});
  EXPECT_EQ(Step(s).size(), 1u);
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Scheduler s(kOptions);
  absl::Status status = s.Enqueue(Request(1, 1, 1, 101));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "request needs 101 bytes of cache, the whole cache has 100");
  status = s.Enqueue(Request(1, 1, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "n: 5, expected at most 4 running sequences");
  EXPECT_EQ(s.n_waiting(), 0);
}

TEST(Scheduler, RefusesBeyondTheQueue) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1), Request(2, 1), Request(3, 1)});
  const absl::Status status = s.Enqueue(Request(4, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "queue: 3 requests waiting, expected fewer than 3");
  s.NextBatch();  // admits all three
  EXPECT_TRUE(s.Enqueue(Request(4, 1)).ok());
}

TEST(Scheduler, RemovesAWaitingRequest) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1), Request(2, 1)});
  s.Remove(1);
  EXPECT_EQ(s.n_waiting(), 1);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 0, 1, true}));
}

TEST(Scheduler, RemovesARequestInTheMiddleOfItsPrompt) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 20, 2, 30)});
  Step(s);
  s.Remove(1);
  EXPECT_EQ(s.n_running(), 0);
  EXPECT_EQ(s.reserved_bytes(), 0);
  EXPECT_THAT(Step(s), IsEmpty());
  Enqueue(s, {Request(2, 1, 4)});  // all four places are free again
  EXPECT_EQ(Step(s).size(), 1u);
}

TEST(Scheduler, RemovesADecodingRequestWithFinishedChoices) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 1, 3)});
  Step(s);
  s.FinishChoice(1, 2);
  s.Remove(1);
  EXPECT_EQ(s.reserved_bytes(), 0);
  Enqueue(s, {Request(2, 1, 4)});
  EXPECT_EQ(Step(s).size(), 1u);
}

TEST(Scheduler, RemovalBetweenBatchAndCommitIsForgotten) {
  Scheduler s(kOptions);
  Enqueue(s, {Request(1, 2), Request(2, 2)});
  const ScheduledBatch batch = s.NextBatch();
  s.Remove(1);
  s.Commit(batch);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{2, 0, 2, 1, true}));
}

TEST(Scheduler, IgnoresUnknownIds) {
  Scheduler s(kOptions);
  s.SetPaused(7, true);
  s.Remove(7);
  EXPECT_EQ(s.n_running(), 0);
}

TEST(Scheduler, FullRunningSetStillMovesAPromptForward) {
  Scheduler s({4, 4, 100, 3});  // as many rows as sequences
  Enqueue(s, {Request(1, 1, 3), Request(2, 9)});
  Step(s);
  for (int64_t at = 3; at < 9; ++at) {
    EXPECT_THAT(Step(s).back(), (ScheduledRows{2, 0, at, 1, at == 8}));
  }
}

// A byte a token, and as many new tokens as it says.
SchedulerRequest Growing(uint64_t id, int64_t n_prompt_tokens, int64_t max_new_tokens) {
  SchedulerRequest r = Request(id, n_prompt_tokens);
  r.max_new_tokens = max_new_tokens;
  r.bytes = [](int64_t n_tokens) { return n_tokens; };
  return r;
}

const Scheduler::Options kGrowing{8, 4, 1000, 100};

// Answers of one token each, until that is what the scheduler reserves for.
void TeachShortAnswers(Scheduler& s) {
  for (uint64_t id = 1000; id < 1100; ++id) {
    Enqueue(s, {Growing(id, 1, 400)});
    Step(s);
    s.FinishChoice(id, 0);
    s.Remove(id);
  }
}

TEST(Scheduler, ReservesTheWholeAnswerUntilItKnowsBetter) {
  Scheduler s(kGrowing);
  Enqueue(s, {Growing(1, 1, 400), Growing(2, 1, 400), Growing(3, 1, 400)});
  Step(s);
  EXPECT_EQ(s.n_running(), 2);
  EXPECT_EQ(s.reserved_bytes(), 800);
}

TEST(Scheduler, AnswersThatWereShortMakeRoomForMore) {
  Scheduler s(kGrowing);
  TeachShortAnswers(s);
  Enqueue(s, {Growing(1, 1, 400), Growing(2, 1, 400), Growing(3, 1, 400)});
  Step(s);
  EXPECT_EQ(s.n_running(), 3);
  EXPECT_LT(s.reserved_bytes(), 3 * 150);
}

TEST(Scheduler, TheYoungestGivesWayWhenMemoryRunsOutAndIsComputedAgain) {
  Scheduler s(kGrowing);
  TeachShortAnswers(s);
  Enqueue(s, {Growing(1, 10, 500), Growing(2, 20, 500), Growing(3, 30, 500)});
  std::vector<uint64_t> preempted;
  int64_t n_steps = 0;
  while (preempted.empty()) {
    ASSERT_LT(++n_steps, 1000);
    const ScheduledBatch batch = s.NextBatch();
    preempted = batch.preempted;
    for (const ScheduledRows& rows : batch.rows) EXPECT_NE(rows.request, 3u * preempted.size());
    s.Commit(batch);
  }
  EXPECT_THAT(preempted, ElementsAre(3));
  EXPECT_EQ(s.n_waiting(), 1);
  EXPECT_EQ(s.n_preemptions(), 1);
  s.Remove(1);
  s.Remove(2);
  // Its prompt, by itself, and then what it had generated; no row samples before the last.
  int64_t at = 0;
  while (true) {
    const std::vector<ScheduledRows> rows = Step(s);
    ASSERT_EQ(rows.size(), 1u);
    ASSERT_EQ(rows[0].first_position, at);
    at += rows[0].n_rows;
    ASSERT_TRUE(rows[0].first_position >= 30 || at <= 30);
    if (rows[0].samples) break;
  }
  EXPECT_GT(at, 200);
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{3, 0, at, 1, true}));
}

TEST(Scheduler, CachedRowsAreNotComputedAgain) {
  Scheduler::Options options = kGrowing;
  options.cached_rows = [](uint64_t) { return 17; };
  Scheduler s(options);
  Enqueue(s, {Growing(1, 20, 5)});
  EXPECT_THAT(Step(s), ElementsAre(ScheduledRows{1, 0, 17, 3, true}));
}

TEST(Scheduler, RefusesBeyondTheQueueOfPromptTokens) {
  Scheduler::Options options = kGrowing;
  options.max_waiting_prompt_tokens = 50;
  Scheduler s(options);
  Enqueue(s, {Request(1, 60)});  // alone it may wait
  const absl::Status status = s.Enqueue(Request(2, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(Scheduler, PredictsByWhoseTurnItIs) {
  Scheduler s({8, 1, 1000, 100});
  const StepCost cost{{{1, 0.001}, {1e6, 1e3}}};
  for (uint64_t id = 1; id <= 10; ++id) {
    SchedulerRequest r = Growing(id, 10, 90);
    r.tenant = "flood";
    Enqueue(s, {r});
  }
  SchedulerRequest same = Growing(11, 10, 90), other = same;
  same.tenant = "flood";
  other.tenant = "other";
  const absl::Duration late = s.Predict(same, 0, cost, 8).wait;
  const absl::Duration early = s.Predict(other, 0, cost, 8).wait;
  EXPECT_NEAR(absl::ToDoubleSeconds(late), 1.0, 0.05);  // ten requests of 100 rows
  EXPECT_LE(early, absl::Milliseconds(110));
  EXPECT_EQ(s.n_waiting(), 10);
}

TEST(Scheduler, APromptThatIsPreemptedIsPaidForOnce) {
  Scheduler s({8, 1, 1000, 100});
  const auto request = [](uint64_t id, const char* tenant, int64_t n_prompt_tokens) {
    SchedulerRequest r = Growing(id, n_prompt_tokens, 1);
    r.tenant = tenant;
    return r;
  };
  Enqueue(s, {request(1, "a", 40), request(2, "b", 60), request(3, "b", 60), request(4, "a", 1)});
  EXPECT_EQ(Step(s).at(0).request, 1u);
  s.Preempt(1);  // in the middle of its prompt
  EXPECT_EQ(Step(s).at(0).request, 2u);
  s.Remove(2);
  EXPECT_EQ(Step(s).at(0).request, 1u);
  s.Remove(1);
  EXPECT_EQ(Step(s).at(0).request, 4u) << "a had 40 rows and b 60";
}

TEST(Scheduler, ForecastsLeaveOutCachedRowsOfThoseThatWait) {
  Scheduler s({8, 1, 10000, 100});
  const StepCost cost{{{1, 0.001}, {1e6, 1e3}}};
  Enqueue(s, {Growing(1, 1000, 1)});
  const SchedulerRequest next = Growing(2, 10, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(s.Predict(next, 0, cost, 8).wait), 1.0, 0.01);
  s.NoteCachedRows(1, 960);
  s.NoteCachedRows(7, 960);  // an unknown id
  EXPECT_NEAR(absl::ToDoubleSeconds(s.Predict(next, 0, cost, 8).wait), 0.04, 0.01);
}

TEST(Scheduler, ForecastsLeaveOutCachedRowsOfANewRequest) {
  const Scheduler s({8, 1, 10000, 100});
  const StepCost cost{{{1, 0.001}, {1e6, 1e3}}};
  const SchedulerRequest next = Growing(2, 1000, 1);
  const Forecast forecast = s.Predict(next, 960, cost, 8);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.first_token), 1.0, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.cached_first_token), 0.04, 0.01);
}

// Clients that classify use their whole limit of a few tokens.
TEST(Scheduler, ForecastsCountOnTheUsualLengthAndNotOnTheLimit) {
  Scheduler s({8, 1, 10000, 100});
  const StepCost cost{{{1, 0.001}, {1e6, 1e3}}};
  const SchedulerRequest generous = Growing(100, 10, 4000);
  const auto rows = [&] {
    return 1000 * absl::ToDoubleSeconds(s.Predict(generous, 0, cost, 8).end);
  };
  EXPECT_GT(rows(), 4000);
  for (uint64_t id = 1; id <= 20; ++id) {
    Enqueue(s, {Growing(id, 10, 5)});
    for (int step = 0; step < 5; ++step) s.Commit(s.NextBatch());
    s.FinishChoice(id, 0);
    s.Remove(id);
  }
  EXPECT_LT(rows(), 100);
  Enqueue(s, {generous});
  for (int step = 0; step < 1000; ++step) s.Commit(s.NextBatch());
  EXPECT_NEAR(absl::ToDoubleSeconds(s.Predict(Growing(101, 10, 5), 0, cost, 8).wait), 1, 0.1)
      << "who has passed the usual length is expected to go on for as long again";
}

TEST(Scheduler, PausedRequestsGiveWayToThoseThatWait) {
  Scheduler s(kGrowing);
  Enqueue(s, {Growing(1, 1, 500), Growing(2, 1, 500)});
  Step(s);
  s.SetPaused(1, true);
  Enqueue(s, {Growing(3, 1, 500)});
  const ScheduledBatch batch = s.NextBatch();
  EXPECT_THAT(batch.preempted, ElementsAre(1));
  s.Commit(batch);
  EXPECT_EQ(s.n_running(), 2);
  EXPECT_EQ(s.n_waiting(), 0);  // whoever is paused waits for its reader alone
  s.SetPaused(1, false);
  EXPECT_EQ(s.n_waiting(), 1);
  s.Remove(3);
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{2, 0, 2, 1, true}, ScheduledRows{1, 0, 0, 1, false}));
  EXPECT_THAT(Step(s),
              ElementsAre(ScheduledRows{2, 0, 3, 1, true}, ScheduledRows{1, 0, 1, 1, true}));
}

}  // namespace
}  // namespace lowkey
