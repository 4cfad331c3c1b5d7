// Drafts change how many rows a step has and nothing that a request gets: not a bit.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/engine.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/attention_variants.h"
#include "tests/engine/runtime/drafts_fixture.h"

namespace lowkey {
namespace {

class EngineDraftTest : public DraftsFixture {
 protected:
  static EngineRequest Drafted(EngineRequest request) {
    request.draft = DraftMode::kLookup;
    return request;
  }

  // A prompt that repeats itself, and an output over the ends of pages, blocks and forms. The model
  // is random: cold draws fall into loops and hot ones do not.
  static EngineRequest Repetitive(const AttentionVariant& v, int i) {
    EngineRequest r = Request(40 + 7 * (i % 3), 150, i % 2);
    const std::vector<int32_t> once = r.prompt;
    r.prompt.insert(r.prompt.end(), once.begin(), once.begin() + 20);
    r.attention = v.options;
    r.n = 1 + i % 2;
    constexpr float kTemperatures[] = {0.0f, 0.05f, 0.3f, 1.0f};
    r.sampling.temperature = kTemperatures[i % 4];
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.logprobs = 2;
    if (i % 5 == 1) {
      r.sampling.frequency_penalty = 0.1f;
      r.sampling.repetition_penalty = 1.05f;
      r.sampling.logit_bias = {{7, 1.5f}, {12, -3.0f}};
    }
    if (i % 5 == 2) r.sampling.top_k = 3;
    if (i % 4 == 3) r.prompt_logprobs = 0;
    return r;
  }

  std::vector<std::shared_ptr<Collected>> SubmitDrafted(const std::vector<EngineRequest>& all) {
    std::vector<std::shared_ptr<Collected>> together;
    for (const EngineRequest& r : all) together.push_back(Submit(Drafted(r)));
    return together;
  }

  // A greedy request whose output is a loop, with the tokens that it gives.
  std::pair<EngineRequest, std::vector<int32_t>> Loop(const AttentionOptions& attention) {
    EngineRequest r = Request(30, 100);
    r.attention = attention;
    const auto whole = Submit(r);
    EXPECT_TRUE(whole->Wait().status.ok());
    r.prompt.insert(r.prompt.end(), whole->tokens[0].begin(), whole->tokens[0].begin() + 60);
    r.max_new_tokens = 40;
    const auto rest = Submit(r);
    EXPECT_TRUE(rest->Wait().status.ok());
    return {r, rest->tokens[0]};
  }

  int64_t n_drafted_ = 0, n_accepted_ = 0;
};

TEST_F(EngineDraftTest, EveryMechanismAnswersAsWithoutDrafts) {
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 8; ++i) requests.push_back(Repetitive(v, i));
    Start();
    const auto alone = RunAlone(requests);
    EXPECT_EQ(engine_->Stats().n_drafted_tokens, 0);
    Start();
    const auto together = SubmitDrafted(requests);
    int64_t n_drafted = 0, n_accepted = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(*together[i], *alone[i]);
      n_drafted += together[i]->Wait().n_drafted_tokens;
      n_accepted += together[i]->Wait().n_accepted_tokens;
    }
    EXPECT_EQ(engine_->Stats().n_drafted_tokens, n_drafted);
    EXPECT_EQ(engine_->Stats().n_accepted_tokens, n_accepted);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
    if (v.options.mechanism == Mechanism::kLasso) {
      EXPECT_EQ(n_drafted, 0) << "its sums cannot be taken back";
      continue;
    }
    EXPECT_GT(n_accepted, 50);
    EXPECT_GT(n_drafted - n_accepted, 20) << "rejected";
  }
}

TEST_F(EngineDraftTest, ALoopTakesFewerSteps) {
  Start();
  const auto [request, tokens] = Loop({});
  const int64_t before = engine_->Stats().n_steps;
  const auto drafted = Submit(Drafted(request));
  const FinalEvent event = drafted->Wait();
  EXPECT_EQ(drafted->tokens[0], tokens);
  EXPECT_GT(event.n_accepted_tokens, 25);
  EXPECT_EQ(engine_->Stats().n_steps - before, 40 - event.n_accepted_tokens);
}

TEST_F(EngineDraftTest, StopTokensAndLimitsEndADraft) {
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    Start();
    auto [request, tokens] = Loop(v.options);
    for (int32_t stop : std::set<int32_t>(tokens.begin(), tokens.end())) {
      request.stop_tokens = {stop};
      const auto plain = Submit(request);
      ExpectSame(*Submit(Drafted(request)), *plain);
      EXPECT_EQ(plain->tokens[0].back(), stop);
    }
    request.stop_tokens.clear();
    for (request.max_new_tokens = 1; request.max_new_tokens <= 24; ++request.max_new_tokens) {
      const auto plain = Submit(request);
      const auto drafted = Submit(Drafted(request));
      ExpectSame(*drafted, *plain);
      EXPECT_EQ(drafted->Wait().n_generated[0], request.max_new_tokens);
    }
  }
}

TEST_F(EngineDraftTest, PreemptedRequestsAnswerAsWithoutDrafts) {
  int64_t n_preemptions = 0;
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(Repetitive(v, i));
    Start();
    const auto alone = RunAlone(requests);
    int64_t peak_bytes = 0;
    for (const auto& a : alone) {
      peak_bytes = std::max(peak_bytes, a->Wait().attention.peak_cache_bytes);
    }
    EngineOptions options;
    options.max_batch_tokens = 100;
    options.keeps_prefixes = false;
    options.cache_bytes = 2 * peak_bytes;
    const auto can_each_run = [&] {
      return std::all_of(requests.begin(), requests.end(), [&](const EngineRequest& r) {
        const auto id =
            engine_->Submit(r, std::make_unique<CollectingSink>(std::make_shared<Collected>()));
        if (id.ok()) engine_->Cancel(*id);
        return id.ok();
      });
    };
    for (Start(options); !can_each_run(); Start(options)) options.cache_bytes += peak_bytes / 4;
    // So many short answers that long ones are not reserved for.
    for (int i = 0; i < 60; ++i) {
      Submit(Request(3, 200, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
    }
    const auto together = SubmitDrafted(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(*together[i], *alone[i], /*may_drop_choices=*/true);
    }
    n_preemptions += engine_->Stats().n_preemptions;
  }
  EXPECT_GT(n_preemptions, 10);
}

// The rows that a drafted answer leaves in the prefix cache are those that it gave.
TEST_F(EngineDraftTest, PrefixesOfDraftedAnswersAreContinuedAsAnyOther) {
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    Start();
    EngineRequest first = Repetitive(v, 0);
    first.max_new_tokens = 90;
    first.prompt_logprobs.reset();
    const auto answer = Submit(Drafted(first));
    ASSERT_TRUE(answer->Wait().status.ok());
    EngineRequest second = first;
    second.prompt.insert(second.prompt.end(), answer->tokens[0].begin(), answer->tokens[0].end());
    second.max_new_tokens = 50;
    const auto continued = Submit(Drafted(second));
    continued->Wait();
    EngineOptions options;
    options.keeps_prefixes = false;
    Start(options);
    ExpectSame(*continued, *Submit(second));
  }
}

TEST_F(EngineDraftTest, SinksStopPauseAndCancelInsideADraft) {
  Start();
  const auto [request, tokens] = Loop({});
  for (int n = 1; n <= 12; ++n) {
    SCOPED_TRACE(n);
    for (SinkAnswer answer : {SinkAnswer::kStop, SinkAnswer::kCancel}) {
      const auto after_n = [n, answer, seen = 0](int32_t, int32_t) mutable {
        return ++seen == n ? answer : SinkAnswer::kContinue;
      };
      const auto drafted = Submit(Drafted(request), after_n);
      const FinalEvent event = drafted->Wait();
      EXPECT_EQ(event.n_generated[0], n);
      EXPECT_EQ(drafted->tokens[0].size(), static_cast<size_t>(n));
    }
    // The rest of the step follows a pause.
    RequestId id = 0;
    absl::Notification is_known;
    const auto paused = Submit(Drafted(request), [&, seen = 0](int32_t, int32_t) mutable {
      if (++seen != n) return SinkAnswer::kContinue;
      is_known.WaitForNotification();
      engine_->Resume(id);
      return SinkAnswer::kPause;
    });
    id = last_id_;
    is_known.Notify();
    paused->Wait();
    EXPECT_EQ(paused->tokens[0], tokens);
  }
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineDraftTest, ManyStreamsShareTheStepsRows) {
  EngineOptions options;
  options.max_running_seqs = 40;
  options.max_batch_tokens = 40;
  Start(options);
  AttentionVariant standard{"standard", {}};
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 40; ++i) requests.push_back(Repetitive(standard, i));
  const auto alone = RunAlone(requests);
  const auto together = SubmitDrafted(requests);
  for (size_t i = 0; i < requests.size(); ++i) ExpectSame(*together[i], *alone[i]);
}

}  // namespace
}  // namespace lowkey
