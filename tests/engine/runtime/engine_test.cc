#include "engine/runtime/engine.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/inspect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

LogitsOptions WhereTheEngineIs() {
  LogitsOptions options;
  options.engine.device = NewTestDevice();
  return options;
}

// Sixteen requests that differ in length, mechanism and sampling.
std::vector<EngineRequest> MixedRequests() {
  std::vector<EngineRequest> out;
  for (int i = 0; i < 16; ++i) {
    EngineRequest r = i % 2 == 0 ? Request(3 + 11 * i, 40, i) : AtpRequest(3 + 11 * i, 40, i);
    if (i % 8 == 2) r = TaylorShiftRequest(3 + 11 * i, 60, TaylorForm::kRecurrent, i);
    if (i % 8 == 6) r = TaylorShiftRequest(3 + 11 * i, 90, TaylorForm::kAuto, i);
    if (i % 4 >= 2) {
      r.sampling.temperature = 1.0f;
      r.sampling.top_k = 20;
      r.sampling.seed = i;
    }
    if (i % 8 == 5) r.attention.atp.prefill = AtpPrefill::kCompressed;
    if (i % 8 == 7) r.attention.atp.basis = AtpBasis::kKv;
    constexpr Mechanism kBundled[] = {Mechanism::kEfficient, Mechanism::kOptimised,
                                      Mechanism::kSuper, Mechanism::kLasso};
    if (i % 3 == 2) r.attention.mechanism = kBundled[i / 3 % 4];
    r.sampling.logprobs = 0;
    out.push_back(r);
  }
  return out;
}

TEST_F(EngineTest, StreamsTogetherEqualEachAloneToTheBit) {
  for (const auto dtype : {EngineOptions::Dtype::kFloat32, EngineOptions::Dtype::kBFloat16}) {
    EngineOptions options;
    options.dtype = dtype;
    options.max_batch_tokens = 100;  // prompts are cut at odd places
    Start(options);
    std::vector<std::shared_ptr<Collected>> alone, together;
    for (const EngineRequest& r : MixedRequests()) {
      alone.push_back(Submit(r));
      EXPECT_TRUE(alone.back()->Wait().status.ok());
    }
    for (const EngineRequest& r : MixedRequests()) together.push_back(Submit(r));
    for (size_t i = 0; i < together.size(); ++i) {
      const FinalEvent event = together[i]->Wait();
      EXPECT_TRUE(event.status.ok()) << event.status;
      EXPECT_THAT(event.finish_reasons, Each(FinishReason::kLength));
      EXPECT_EQ(together[i]->tokens, alone[i]->tokens) << "request " << i;
      EXPECT_EQ(together[i]->logprobs, alone[i]->logprobs) << "request " << i;
      EXPECT_EQ(together[i]->n_done_calls, 1);
    }
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
}

TEST_F(EngineTest, GreedyTokensFollowTheLogits) {
  Start();
  const EngineRequest r = Request(20, 12);
  const auto got = Submit(r);
  got->Wait();
  std::vector<int32_t> all = r.prompt;
  all.insert(all.end(), got->tokens[0].begin(), got->tokens[0].end());
  const auto logits = ComputeLogits(OpenCheckpoint(model_.path()).value(), all, WhereTheEngineIs());
  ASSERT_TRUE(logits.ok());
  for (size_t i = 0; i < got->tokens[0].size(); ++i) {
    const auto row = logits->begin() + (r.prompt.size() + i - 1) * 96;
    EXPECT_EQ(got->tokens[0][i], std::max_element(row, row + 96) - row);
  }
}

// Choices share the prompt's state until each folds a chunk of its own.
TEST_F(EngineTest, ChoicesOfTaylorShiftAreAsIfAloneAndFreeEverything) {
  Start();
  EngineRequest together = TaylorShiftRequest(150, 80, TaylorForm::kRecurrent);
  together.sampling.temperature = 1.0f;
  together.n = 3;
  const auto three = Submit(together);
  const FinalEvent event = three->Wait();
  ASSERT_TRUE(event.status.ok()) << event.status;
  EXPECT_EQ(event.attention.mechanism, Mechanism::kTaylorShift);
  EXPECT_EQ(event.attention.n_state_tokens, 192);  // of 229, in chunks of 64
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  together.n = 1;
  const auto one = Submit(together);
  one->Wait();
  EXPECT_EQ(one->tokens[0], three->tokens[0]);
  EXPECT_NE(three->tokens[0], three->tokens[1]);
}

TEST_F(EngineTest, FormsOfTaylorShiftAnswerAlike) {
  EngineOptions options;
  options.dtype = EngineOptions::Dtype::kFloat32;
  Start(options);
  std::vector<std::vector<int32_t>> tokens;
  for (TaylorForm form : {TaylorForm::kDirect, TaylorForm::kAuto, TaylorForm::kRecurrent}) {
    const auto got = Submit(TaylorShiftRequest(200, 30, form));
    EXPECT_TRUE(got->Wait().status.ok());
    tokens.push_back(got->tokens[0]);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_EQ(tokens[0], tokens[2]);
}

TEST_F(EngineTest, ReportsAtpBlocksAndBytesBesideStandards) {
  Start();
  const FinalEvent atp = Submit(AtpRequest(150, 80))->Wait();
  const FinalEvent standard = Submit(Request(150, 80))->Wait();
  EXPECT_EQ(atp.attention.mechanism, Mechanism::kAtp);
  EXPECT_EQ(atp.attention.rank, 4);
  EXPECT_EQ(atp.attention.n_compressed_blocks, 3);  // of 64 tokens, in 229
  EXPECT_LT(atp.attention.cache_bytes, atp.attention.standard_cache_bytes);
  EXPECT_EQ(atp.attention.standard_cache_bytes, standard.attention.cache_bytes);
  EXPECT_EQ(standard.attention.cache_bytes, standard.attention.standard_cache_bytes);
  EXPECT_EQ(standard.attention.n_compressed_blocks, 0);
  EXPECT_EQ(atp.n_prompt_tokens, 150);
  EXPECT_EQ(atp.n_generated, std::vector<int32_t>{80});
}

TEST_F(EngineTest, ChoicesShareThePromptAndDrawTheirOwnTokens) {
  Start();
  EngineRequest r = AtpRequest(130, 30);
  r.n = 4;
  r.sampling.temperature = 1.5f;
  r.sampling.seed = 7;
  const auto four = Submit(r);
  const FinalEvent event = four->Wait();
  ASSERT_EQ(four->tokens.size(), 4u);
  EXPECT_NE(four->tokens[0], four->tokens[1]);
  EXPECT_EQ(event.finish_reasons.size(), 4u);
  r.n = 1;
  const auto one = Submit(r);
  one->Wait();
  EXPECT_EQ(one->tokens[0], four->tokens[0]);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTest, PromptLogprobsEqualTheLogits) {
  EngineOptions options;
  options.max_batch_tokens = 64;  // several chunks
  Start(options);
  EngineRequest r = Request(100, 0);
  r.prompt_logprobs = 2;
  const auto got = Submit(r);
  EXPECT_TRUE(got->Wait().status.ok());
  const auto logits =
      ComputeLogits(OpenCheckpoint(model_.path()).value(), r.prompt, WhereTheEngineIs());
  ASSERT_EQ(got->prompt_logprobs.size(), 99u);
  for (int i = 1; i < 100; ++i) {
    const absl::Span<const float> row(logits->data() + (i - 1) * 96, 96);
    const PromptLogprob& p = got->prompt_logprobs[i - 1];
    EXPECT_EQ(p.position, i);
    EXPECT_EQ(p.token.token, r.prompt[i]);
    EXPECT_EQ(p.token.logprob, LogSoftmaxAt(row, r.prompt[i]));
    EXPECT_EQ(p.top.size(), 2u);
  }
  EXPECT_TRUE(got->tokens.empty());
}

TEST_F(EngineTest, PromptLogprobsBeginWhereTheRequestSays) {
  EngineOptions options;
  options.max_batch_tokens = 64;
  Start(options);
  EngineRequest r = Request(100, 0);
  r.prompt_logprobs = 0;
  const auto all = Submit(r);
  all->Wait();
  r.prompt_logprobs_from = 70;
  const auto late = Submit(r);
  late->Wait();
  ASSERT_EQ(late->prompt_logprobs.size(), 30u);
  EXPECT_EQ(late->prompt_logprobs[0].position, 70);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(late->prompt_logprobs[i].token.logprob, all->prompt_logprobs[69 + i].token.logprob);
  }
  r.prompt_logprobs_from = 0;
  EXPECT_THAT(std::string(Refused(r).message()), HasSubstr("prompt_logprobs_from: 0"));
}

TEST_F(EngineTest, EndsAtAStopTokenAndReportsIt) {
  Start();
  const auto free_run = Submit(Request(10, 20));
  free_run->Wait();
  EngineRequest r = Request(10, 20);
  r.stop_tokens = {free_run->tokens[0][0]};
  const auto stopped = Submit(r);
  EXPECT_THAT(stopped->Wait().finish_reasons, Each(FinishReason::kStopToken));
  EXPECT_EQ(stopped->tokens[0].size(), 1u);
}

TEST_F(EngineTest, EndsWhenTheSinkSaysStop) {
  Start();
  int n = 0;
  const auto got = Submit(Request(10, 50), [&n](int32_t, int32_t) {
    return ++n == 5 ? SinkAnswer::kStop : SinkAnswer::kContinue;
  });
  EXPECT_THAT(got->Wait().finish_reasons, Each(FinishReason::kStoppedBySink));
  EXPECT_EQ(got->tokens[0].size(), 5u);
}

TEST_F(EngineTest, EndsAllChoicesAsCancelledWhenTheReaderIsGone) {
  Start();
  EngineRequest r = Request(10, 50);
  r.n = 3;
  const auto got = Submit(r, [](int32_t choice, int32_t) {
    return choice == 1 ? SinkAnswer::kCancel : SinkAnswer::kContinue;
  });
  EXPECT_EQ(got->Wait().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(got->tokens.size() < 3 || got->tokens[2].empty());
  EXPECT_EQ(engine_->Stats().n_cancelled_requests, 1);
  EXPECT_EQ(engine_->Stats().n_finished_requests, 0);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

// Whoever sends the tokens is woken by steps, not by tokens.
TEST_F(EngineTest, TellsOfItsDeliveriesByTheStep) {
  constexpr int kChoices = 8, kTokens = 40;
  std::atomic<int64_t> n_told = 0;
  EngineOptions options;
  options.after_delivery = [&n_told] { ++n_told; };
  Start(options);
  EngineRequest r = Request(10, kTokens);
  r.n = kChoices;
  EXPECT_TRUE(Submit(r)->Wait().status.ok());
  const int64_t n_steps = engine_->Stats().n_steps;
  engine_.reset();
  EXPECT_LT(n_steps, kTokens + 10);
  EXPECT_LE(n_told, 3 * (n_steps + 5)) << "before, in and after a step";
}

TEST_F(EngineTest, APausedRequestComputesNothingUntilItIsResumedAndIsAsIfItHadNotPaused) {
  Start();
  const auto free_run = Submit(Request(10, 50));
  free_run->Wait();
  const auto paused = Submit(Request(10, 50), [n = 0](int32_t, int32_t) mutable {
    return ++n == 5 ? SinkAnswer::kPause : SinkAnswer::kContinue;
  });
  const RequestId paused_id = last_id_;
  EXPECT_TRUE(Submit(Request(10, 240))->Wait().status.ok());  // steps go on without it
  EXPECT_FALSE(paused->done.HasBeenNotified());
  EXPECT_GT(engine_->Stats().cache_bytes_used, 0);
  const int64_t n_steps = engine_->Stats().n_steps;
  engine_->Resume(123456);  // unknown: ignored
  EXPECT_EQ(engine_->Stats().n_steps, n_steps);
  EXPECT_EQ(engine_->Stats().n_running_requests, 1);
  engine_->Resume(paused_id);
  EXPECT_TRUE(paused->Wait().status.ok());
  EXPECT_EQ(paused->tokens, free_run->tokens);
  engine_->Resume(paused_id);  // finished: ignored
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTest, AResumeThatOvertakesItsPauseIsNotLost) {
  Start();
  absl::Notification in_sink, resumed;
  const auto got = Submit(Request(10, 50), [&, n = 0](int32_t, int32_t) mutable {
    if (++n != 5) return SinkAnswer::kContinue;
    in_sink.Notify();
    resumed.WaitForNotification();
    return SinkAnswer::kPause;
  });
  in_sink.WaitForNotification();
  engine_->Resume(last_id_);
  resumed.Notify();
  EXPECT_TRUE(got->Wait().status.ok());
  EXPECT_EQ(got->tokens[0].size(), 50u);
}

TEST_F(EngineTest, APausedRequestIsCancelledAndMeetsItsDeadlineWhileNothingElseRuns) {
  Start();
  const auto pause = [](int32_t, int32_t) { return SinkAnswer::kPause; };
  const auto cancelled = Submit(Request(10, 50), pause);
  engine_->Cancel(last_id_);
  EXPECT_EQ(cancelled->Wait().status.code(), absl::StatusCode::kCancelled);
  EngineRequest r = Request(10, 50);
  r.deadline = absl::Now() + absl::Milliseconds(50);
  EXPECT_EQ(Submit(r, pause)->Wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  const auto ended = Submit(Request(10, 50), pause);
  engine_->EndAll(absl::UnavailableError("stopping"));
  EXPECT_EQ(ended->Wait().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTest, CancelFreesTheCacheBeforeTheTerminalEvent) {
  Start();
  absl::Notification first, cancelled;
  const auto got = Submit(AtpRequest(100, 150), [&](int32_t, int32_t) {
    if (!first.HasBeenNotified()) first.Notify();
    cancelled.WaitForNotification();
    return SinkAnswer::kContinue;
  });
  first.WaitForNotification();
  engine_->Cancel(last_id_);
  cancelled.Notify();
  EXPECT_EQ(got->Wait().status.code(), absl::StatusCode::kCancelled);
  EXPECT_LE(got->tokens[0].size(), 2u);  // within a step
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  EXPECT_EQ(engine_->Stats().n_running_requests, 0);
  engine_->Cancel(last_id_);  // finished: ignored
  engine_->Cancel(123456);    // unknown: ignored
  EXPECT_TRUE(Submit(Request(5, 3))->Wait().status.ok());
}

TEST_F(EngineTest, ADeadlineEndsARequestThatRunsOrWaits) {
  EngineOptions options;
  options.max_running_seqs = 1;
  Start(options);
  absl::Notification first, late;
  EngineRequest running = Request(10, 240), waiting = Request(10, 240, 1);
  running.deadline = waiting.deadline = absl::Now() + absl::Milliseconds(500);
  const auto a = Submit(running, [&](int32_t, int32_t) {
    if (!first.HasBeenNotified()) first.Notify();
    late.WaitForNotification();
    return SinkAnswer::kContinue;
  });
  first.WaitForNotification();
  const auto b = Submit(waiting);
  absl::SleepFor(running.deadline + absl::Milliseconds(1) - absl::Now());
  late.Notify();
  EXPECT_EQ(a->Wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(b->Wait().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(b->tokens.empty());
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTest, RefusesWhatIsOutOfRangeAndSaysWhich) {
  Start();
  const auto expect = [&](const EngineRequest& r, absl::StatusCode code, const std::string& text) {
    const absl::Status status = Refused(r);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  using absl::StatusCode;
  expect(Request(0, 5), StatusCode::kInvalidArgument, "prompt");
  expect(Request(5, 0), StatusCode::kInvalidArgument, "max_new_tokens: 0");
  expect(Request(200, 57), StatusCode::kOutOfRange, "context of 256");
  expect(Request(5, 2147483647), StatusCode::kOutOfRange, "context of 256");
  EngineRequest r = Request(5, 5);
  r.prompt[3] = 96;
  expect(r, StatusCode::kInvalidArgument, "prompt[3]: 96, expected 0..95");
  r = Request(5, 5);
  r.n = 9;
  expect(r, StatusCode::kInvalidArgument, "n: 9, expected 1..8");
  r = Request(5, 5);
  r.stop_tokens = {-1};
  expect(r, StatusCode::kInvalidArgument, "stop_tokens[0]: -1");
  for (const int32_t mark : {-1, 0, 6}) {
    r = Request(5, 5);
    r.prefix_marks = {1, mark};
    expect(r, StatusCode::kInvalidArgument, "prefix_marks: " + std::to_string(mark));
  }
  r = AtpRequest(5, 5);
  r.attention.atp.block_tokens = 100;
  expect(r, StatusCode::kInvalidArgument, "block");
  r = Request(5, 5);
  r.prompt_logprobs = 21;
  expect(r, StatusCode::kInvalidArgument, "prompt_logprobs");
  r = Request(5, 5);
  r.sampling.temperature = -1;
  expect(r, StatusCode::kInvalidArgument, "temperature");
}

TEST_F(EngineTest, RefusesWhatTheWholeCacheCannotHold) {
  EngineOptions options;
  options.cache_bytes = 5 * PageBytesOfTheEngine() / 2;
  Start(options);
  const absl::Status status = Refused(Request(100, 100));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("whole cache of ", options.cache_bytes)));
  EXPECT_TRUE(Submit(Request(60, 60))->Wait().status.ok());
}

TEST_F(EngineTest, FinishesEverythingWhenTheCacheHoldsOneRequestAtATime) {
  EngineOptions options;
  options.cache_bytes = 13 * PageBytesOfTheEngine() / 4;
  Start(options);
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 30; ++i) all.push_back(Submit(Request(60 + i, 90, i)));
  for (const auto& c : all) {
    EXPECT_TRUE(c->Wait().status.ok());
    EXPECT_LE(c->final_event->attention.peak_cache_bytes, options.cache_bytes);
  }
}

TEST_F(EngineTest, RefusesWhenTheQueueIsFull) {
  EngineOptions options;
  options.max_running_seqs = 1;
  options.max_queued_requests = 2;
  Start(options);
  absl::Notification started, release;
  const auto running = Submit(Request(10, 200), [&](int32_t, int32_t) {
    if (!started.HasBeenNotified()) {
      started.Notify();
      release.WaitForNotification();  // holds the engine's thread, so that the queue stays as it is
    }
    return SinkAnswer::kContinue;
  });
  started.WaitForNotification();
  const auto a = Submit(Request(5, 5)), b = Submit(Request(5, 5));
  EXPECT_EQ(Refused(Request(5, 5)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine_->Stats().n_waiting_requests, 2);
  release.Notify();
  EXPECT_TRUE(a->Wait().status.ok());
  EXPECT_TRUE(b->Wait().status.ok());
}

TEST_F(EngineTest, DrainFinishesAdmittedWorkAndRefusesNew) {
  Start();
  const auto got = Submit(Request(50, 150));
  EXPECT_TRUE(engine_->Drain(absl::Now() + absl::Seconds(60)));
  EXPECT_EQ(got->n_done_calls, 1);
  EXPECT_TRUE(got->final_event->status.ok());
  EXPECT_EQ(Refused(Request(5, 5)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, EndAllEndsRunningAndWaitingRequestsWithItsStatus) {
  Start();
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 8; ++i) all.push_back(Submit(Request(100, 150, i)));
  engine_->EndAll(absl::UnavailableError("stopping"));
  for (const auto& c : all) {
    const FinalEvent event = c->Wait();
    EXPECT_EQ(c->n_done_calls, 1);
    EXPECT_TRUE(event.status.ok() || event.status.code() == absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(all.back()->final_event->status, absl::UnavailableError("stopping"));
  EXPECT_TRUE(engine_->Drain(absl::Now() + absl::Seconds(60)));
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTest, EndAllOfAnIdleEngineDoesNotTouchLaterRequests) {
  Start();
  engine_->EndAll(absl::UnavailableError("stopping"));
  // Seen by the engine before the next request, or together with it.
  const FinalEvent first = Submit(Request(5, 5))->Wait();
  EXPECT_TRUE(first.status.ok() || first.status.code() == absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Submit(Request(5, 5))->Wait().status.ok());
}

TEST_F(EngineTest, DestructionCancelsWhatStillRuns) {
  Start();
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 8; ++i) all.push_back(Submit(Request(100, 150, i)));
  engine_.reset();
  for (const auto& c : all) EXPECT_EQ(c->n_done_calls, 1);
}

TEST_F(EngineTest, StepsAreCountedByTheirRows) {
  Start();
  Submit(Request(100, 3))->Wait();  // one step of 100 rows, then two of one
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.n_steps, 3);
  EXPECT_EQ(stats.n_rows, 102);
  for (size_t i = 0; i < stats.n_steps_by_rows.size(); ++i) {
    const int64_t expected = i == 0 ? 2 : kStepRowBounds[std::min<size_t>(i, 12)] == 128 ? 1 : 0;
    EXPECT_EQ(stats.n_steps_by_rows[i], expected) << i;
  }
}

TEST_F(EngineTest, TimingsAddUp) {
  Start();
  const FinalEvent e = Submit(Request(100, 50))->Wait();
  EXPECT_GE(e.timings.queue_us, 0);
  EXPECT_GT(e.timings.prefill_us, 0);
  EXPECT_GT(e.timings.decode_us, 0);
  EXPECT_NEAR(e.timings.ttft_us, e.timings.queue_us + e.timings.prefill_us, 2);
}

}  // namespace
}  // namespace lowkey
