// Steps that a device begins before the tokens of the one before them are read: the same tokens as
// one by one, however sequences end meanwhile. The emulated device computes nothing before somebody
// waits for it, so that whatever is read too early is not there.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/runtime/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/engine/runtime/poisoned_embedding.h"
#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

class EngineAheadTest : public EngineTest {
 protected:
  void StartOnDevice(bool runs_ahead, EngineOptions options = {}) {
    device_ = NewTestDevice();
    if (device_ == nullptr) device_ = std::make_shared<EmulatedDevice>();
    options.device = device_;
    options.runs_ahead = runs_ahead;
    Start(options);
  }

  // That steps were queued while others' tokens were not read, or were not: a GPU does not say.
  void ExpectAhead(bool is_expected) const {
    if (!IsEmulated(*device_)) return;
    EXPECT_EQ(static_cast<const EmulatedDevice&>(*device_).most_unread(), is_expected ? 2 : 1);
  }

  std::shared_ptr<Device> device_;
};

EngineRequest Sampled(EngineRequest r, float temperature, uint64_t seed) {
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  r.sampling.logprobs = 2;
  return r;
}

// The wishes of plain decoding, and the requests that it may share steps with.
std::vector<EngineRequest> Requests() {
  std::vector<EngineRequest> all = {Request(10, 30), Request(70, 9, 1), Request(5, 1, 2),
                                    Request(3, 2, 3), AtpRequest(60, 80, 4)};
  all.push_back(Sampled(Request(20, 25, 5), 0.8f, 1));
  all.back().sampling.top_k = 20;
  all.back().sampling.top_p = 0.9f;
  all.push_back(Sampled(Request(33, 25, 6), 1.2f, 2));
  all.back().sampling.min_p = 0.02f;
  all.back().sampling.logit_bias = {{3, 4.0f}, {9, -50.0f}};
  all.push_back(Sampled(Request(40, 12, 7), 1.0f, 3));
  all.back().n = 3;
  all.push_back(Sampled(Request(90, 6, 8), 0.9f, 4));
  all.back().prompt_logprobs = 1;
  all.push_back(Request(30, 0, 9));
  all.back().prompt_logprobs = 0;
  all.push_back(Sampled(Request(25, 40, 20), 1.0f, 5));
  all.back().n = 2;
  all.back().sampling.frequency_penalty = 0.7f;
  all.back().sampling.repetition_penalty = 1.3f;
  all.push_back(Request(25, 40, 21));
  all.back().sampling.presence_penalty = 1.5f;
  for (Mechanism id : {Mechanism::kTaylorShift, Mechanism::kEfficient, Mechanism::kSuper}) {
    all.push_back(Request(50, 20, static_cast<int>(id) + 10));
    all.back().attention.mechanism = id;
  }
  return all;
}

struct Answer {
  std::map<int32_t, std::vector<int32_t>> tokens;
  std::map<int32_t, std::vector<float>> logprobs;
  std::vector<float> prompt_logprobs;
  std::vector<FinishReason> reasons;
  bool operator==(const Answer&) const = default;
};

Answer AnswerOf(Collected& got) {
  const FinalEvent event = got.Wait();
  EXPECT_TRUE(event.status.ok()) << event.status;
  Answer answer{got.tokens, got.logprobs, {}, event.finish_reasons};
  for (const PromptLogprob& p : got.prompt_logprobs) {
    answer.prompt_logprobs.push_back(p.token.logprob);
  }
  return answer;
}

TEST_F(EngineAheadTest, AStepIsQueuedBeforeTheTokensOfTheOneBeforeItAreRead) {
  for (const bool runs_ahead : {false, true}) {
    StartOnDevice(runs_ahead);
    EXPECT_TRUE(Submit(Request(10, 8))->Wait().status.ok());
    ExpectAhead(runs_ahead);
  }
}

TEST_F(EngineAheadTest, AnswersAreThoseOfStepsOneByOne) {
  EngineOptions options;
  options.max_batch_tokens = 64;  // prompts in several steps, beside those that decode
  std::vector<Answer> answers[2];
  for (const bool runs_ahead : {false, true}) {
    StartOnDevice(runs_ahead, options);
    std::vector<std::shared_ptr<Collected>> all;
    for (const EngineRequest& r : Requests()) all.push_back(Submit(r));
    for (const auto& one : all) answers[runs_ahead].push_back(AnswerOf(*one));
    ExpectAhead(runs_ahead);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
  for (size_t i = 0; i < answers[0].size(); ++i) {
    EXPECT_EQ(answers[1][i], answers[0][i]) << "request " << i;
  }
}

// The steps of the others run ahead only when these are gone.
TEST_F(EngineAheadTest, WhatTheHostHasToKnowIsWaitedFor) {
  std::vector<EngineRequest> requests = {Request(10, 25), Sampled(Request(20, 12, 1), 0.9f, 1),
                                         Request(15, 12, 2)};
  requests[1].attention.mechanism = Mechanism::kLasso;
  requests[2].attention.standard.storage = CacheStorage::kInt8;
  std::vector<Answer> answers[2];
  for (const bool runs_ahead : {false, true}) {
    StartOnDevice(runs_ahead);
    std::vector<std::shared_ptr<Collected>> all;
    for (const EngineRequest& r : requests) all.push_back(Submit(r));
    for (const auto& one : all) answers[runs_ahead].push_back(AnswerOf(*one));
    ExpectAhead(runs_ahead);
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_F(EngineAheadTest, WhoeverEndsLeavesTheOthersAndTheCacheAsTheyWere) {
  StartOnDevice(false);
  std::vector<std::vector<int32_t>> free_runs;
  for (int i = 0; i < 5; ++i) {
    free_runs.push_back(AnswerOf(*Submit(Request(12 + i, 40, i))).tokens.at(0));
  }
  StartOnDevice(true);
  EngineRequest stopped = Request(13, 40, 1);
  stopped.stop_tokens = {free_runs[1][7]};
  const auto at = [](int n, SinkAnswer answer) {
    return
        [=, i = 0](int32_t, int32_t) mutable { return ++i == n ? answer : SinkAnswer::kContinue; };
  };
  const auto whole = Submit(Request(12, 40));
  const auto by_token = Submit(stopped);
  const auto by_sink = Submit(Request(14, 40, 2), at(9, SinkAnswer::kStop));
  const auto gone = Submit(Request(15, 40, 3), at(6, SinkAnswer::kCancel));
  const auto other = Submit(Request(16, 40, 4));
  EXPECT_EQ(whole->Wait().finish_reasons[0], FinishReason::kLength);
  EXPECT_EQ(by_token->Wait().finish_reasons[0], FinishReason::kStopToken);
  EXPECT_EQ(by_sink->Wait().finish_reasons[0], FinishReason::kStoppedBySink);
  EXPECT_EQ(gone->Wait().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(other->Wait().status.ok());
  EXPECT_EQ(whole->tokens[0], free_runs[0]);
  EXPECT_EQ(other->tokens[0], free_runs[4]);
  const auto first = [&](int run, int n) {
    return std::vector<int32_t>(free_runs[run].begin(), free_runs[run].begin() + n);
  };
  EXPECT_EQ(by_sink->tokens[0], first(2, 9));
  EXPECT_EQ(gone->tokens[0], first(3, 6));
  EXPECT_EQ(by_token->tokens[0].back(), free_runs[1][7]);
  EXPECT_EQ(by_token->tokens[0], first(1, static_cast<int>(by_token->tokens[0].size())));
  EXPECT_EQ(by_token->n_done_calls, 1);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  EXPECT_EQ(engine_->Stats().n_running_requests, 0);
}

TEST_F(EngineAheadTest, ACancelFromOutsideEndsItWithinAStepAndTheNextOneUsesItsPages) {
  EngineOptions options;
  options.keeps_prefixes = false;
  StartOnDevice(false, options);
  const Answer alone = AnswerOf(*Submit(Request(70, 60, 1)));
  StartOnDevice(true, options);
  for (int i = 0; i < 3; ++i) {
    absl::Notification begun, cancelled;
    const auto got = Submit(Request(100 + i, 100), [&, n = 0](int32_t, int32_t) mutable {
      if (++n != 5) return SinkAnswer::kContinue;
      begun.Notify();
      cancelled.WaitForNotification();
      return SinkAnswer::kContinue;
    });
    const RequestId id = last_id_;
    begun.WaitForNotification();
    const auto next = Submit(Request(70, 60, 1));
    engine_->Cancel(id);
    cancelled.Notify();
    EXPECT_EQ(got->Wait().status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(got->tokens[0].size(), 5u);
    EXPECT_EQ(AnswerOf(*next), alone);
  }
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

// 60 tokens and 4 that are drawn: the row of the last one, which nobody wants, fills a page.
TEST_F(EngineAheadTest, WhatAnEndedSequenceLeavesForOthersIsWhatItComputed) {
  StartOnDevice(false);
  const std::vector<int32_t> drawn = AnswerOf(*Submit(Request(60, 20))).tokens.at(0);
  EngineRequest next = Request(60, 10);
  next.prompt.insert(next.prompt.end(), drawn.begin(), drawn.begin() + 4);
  for (int i = 0; i < 30; ++i) next.prompt.push_back(i);
  EngineOptions options;
  options.keeps_prefixes = false;
  StartOnDevice(false, options);
  const Answer alone = AnswerOf(*Submit(next));
  StartOnDevice(true);
  EXPECT_TRUE(Submit(Request(60, 20),
                     [n = 0](int32_t, int32_t) mutable {
                       return ++n == 4 ? SinkAnswer::kStop : SinkAnswer::kContinue;
                     })
                  ->Wait()
                  .status.ok());
  const auto got = Submit(next);
  EXPECT_EQ(AnswerOf(*got), alone);
  EXPECT_EQ(got->final_event->n_cached_tokens, 64);
}

TEST_F(EngineAheadTest, PreemptedAndPausedOnesAnswerAsAlone) {
  EngineOptions options;
  options.keeps_prefixes = false;
  std::vector<Answer> alone, together;
  const auto request = [](int i) {
    EngineRequest r = Sampled(Request(20 + 13 * i, 110, i), 0.7f, i);
    r.n = i == 2 ? 2 : 1;
    if (i == 1) r.prompt_logprobs = 0;
    return r;
  };
  StartOnDevice(false, options);
  for (int i = 0; i < 4; ++i) alone.push_back(AnswerOf(*Submit(request(i))));
  const int64_t page_bytes =
      alone.empty() ? 0 : Submit(Request(1, 1))->Wait().attention.cache_bytes;
  options.cache_bytes = 8 * page_bytes;
  StartOnDevice(true, options);
  for (int i = 0; i < 30; ++i) {  // so that long answers are not reserved for
    Submit(Request(3, 100, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
  }
  std::vector<std::shared_ptr<Collected>> all;
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    all.push_back(Submit(request(i), [i, n = 0](int32_t, int32_t) mutable {
      return ++n % 7 == i ? SinkAnswer::kPause : SinkAnswer::kContinue;
    }));
    ids.push_back(last_id_);
  }
  for (const auto& one : all) {
    while (!one->done.WaitForNotificationWithTimeout(absl::Milliseconds(1))) {
      for (RequestId id : ids) engine_->Resume(id);
    }
    together.push_back(AnswerOf(*one));
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i;
  EXPECT_GT(engine_->Stats().n_preemptions, 0);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

// More tokens in a step than have logits at once.
TEST_F(EngineAheadTest, ManySequencesAreReadAtOnce) {
  EngineOptions options;
  options.max_running_seqs = 80;
  std::vector<Answer> answers[2];
  for (const bool runs_ahead : {false, true}) {
    StartOnDevice(runs_ahead, options);
    std::vector<std::shared_ptr<Collected>> all;
    for (int i = 0; i < 70; ++i) all.push_back(Submit(Sampled(Request(4 + i % 3, 5, i), 1.0f, i)));
    for (const auto& one : all) answers[runs_ahead].push_back(AnswerOf(*one));
    ExpectAhead(runs_ahead);
  }
  EXPECT_EQ(answers[1], answers[0]);
}

constexpr int32_t kPoison = 95;

// Its token is drawn in one step and met in the next, which is queued before anybody has read it;
// so is one more, of a token that could not be drawn.
TEST_F(EngineAheadTest, ANaNOfATokenThatNobodyHasReadEndsItsRequestAlone) {
  PoisonEmbedding(model_.File("model.safetensors"), kPoison);
  const auto request = [](int i, float poison_bias) {
    EngineRequest r = Sampled(Request(11 + 7 * i, 30, i), 1.0f, static_cast<uint64_t>(i));
    if (i == 1) r.attention = AtpRequest(1, 1).attention;
    for (int32_t& token : r.prompt) token %= kPoison;
    r.sampling.logit_bias = {{kPoison, poison_bias}};
    return r;
  };
  for (const bool runs_ahead : {false, true}) {
    SCOPED_TRACE(runs_ahead);
    StartOnDevice(runs_ahead);
    std::vector<Answer> alone;
    for (int i = 0; i < 4; ++i) alone.push_back(AnswerOf(*Submit(request(i, -100))));
    std::vector<std::shared_ptr<Collected>> good, bad;
    for (int i = 0; i < 4; ++i) {
      good.push_back(Submit(request(i, -100)));
      bad.push_back(Submit(request(i, i == 0 ? 100 : 3)));  // at once, or sooner or later
    }
    size_t most = 0;
    for (const auto& one : bad) {
      const FinalEvent event = one->Wait();
      EXPECT_EQ(event.status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(event.status.message()), testing::HasSubstr("NaN"));
      ASSERT_FALSE(one->tokens[0].empty());
      EXPECT_EQ(std::ranges::find(one->tokens[0], kPoison), one->tokens[0].end() - 1);
      most = std::max(most, one->tokens[0].size());
    }
    EXPECT_GT(most, 5u);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(AnswerOf(*good[i]), alone[i]) << i;
    ExpectAhead(runs_ahead);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
}

TEST_F(EngineAheadTest, AnEngineThatStopsLeavesNothingBehind) {
  StartOnDevice(true);
  absl::Notification begun;
  const auto got = Submit(Request(10, 200), [&, n = 0](int32_t, int32_t) mutable {
    if (++n == 3) begun.Notify();
    return SinkAnswer::kContinue;
  });
  begun.WaitForNotification();
  engine_ = nullptr;
  EXPECT_EQ(got->Wait().status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace lowkey
