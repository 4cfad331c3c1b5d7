// An exception inside a step that eight streams share ends the one whose it is, wherever it is
// thrown; the seven others get the tokens and log-probabilities that they get without it.
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/attention_variants.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/engine/runtime/throwing_attention.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using Where = AttentionFault::Where;

constexpr int kCulpritPrompt = 151, kNewTokens = 60;
constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();

struct Outcome {
  std::map<int32_t, std::vector<int32_t>> tokens;
  std::map<int32_t, std::vector<float>> logprobs;
  size_t n_prompt_logprobs = 0;
  bool operator==(const Outcome&) const = default;
};

struct Fault {
  Where where = Where::kAttend;
  std::function<void()> throws = [] { throw std::bad_alloc(); };
  int64_t from_token = kCulpritPrompt + 10;
  int64_t n_times = kAlways;
};

class EngineExceptionTest : public EngineTest {
 protected:
  EngineExceptionTest() {
    EngineOptions options;
    options.max_batch_tokens = 64;  // so that prompts come in chunks beside others' rows
    Start(options);
    for (int i = 0; i < 7; ++i) alone_.push_back(OutcomeOf(*Submit(Other(i))));
  }
  ~EngineExceptionTest() override { TheFault().where = Where::kNowhere; }

  // Streams of every kind.
  static EngineRequest Other(int i) {
    const std::vector<AttentionVariant> variants = AttentionVariants();
    EngineRequest r = Request(20 + 9 * i, kNewTokens, i);
    r.attention = variants[(3 * i + 1) % variants.size()].options;
    r.sampling.logprobs = 3;
    r.n = i == 4 ? 3 : 1;
    if (i == 5) r.prompt_logprobs = 0;
    if (i % 2 == 0) r.sampling.temperature = 1.0f, r.sampling.seed = static_cast<uint64_t>(i);
    return r;
  }

  static EngineRequest Culprit(const AttentionOptions& attention = {}) {
    EngineRequest r = Request(kCulpritPrompt, kNewTokens, 9);
    r.attention = attention;
    r.sampling.logprobs = 3;
    return r;
  }

  static Outcome OutcomeOf(Collected& collected) {
    EXPECT_TRUE(collected.Wait().status.ok()) << collected.final_event->status;
    return {collected.tokens, collected.logprobs, collected.prompt_logprobs.size()};
  }

  // Runs the culprit and the seven, which begin in one step; returns the culprit.
  std::shared_ptr<Collected> RunTogether(const EngineRequest& culprit, const Fault& fault) {
    auto gate = std::make_shared<absl::Notification>();
    Submit(Request(2, 1), [gate](int32_t, int32_t) {
      gate->WaitForNotification();
      return SinkAnswer::kContinue;
    });
    std::vector<std::shared_ptr<Collected>> others;
    for (int i = 0; i < 4; ++i) others.push_back(Submit(Other(i)));
    auto collected = Submit(culprit);
    for (int i = 4; i < 7; ++i) others.push_back(Submit(Other(i)));
    TheFault().n_prompt_tokens = kCulpritPrompt;
    TheFault().from_token = fault.from_token;
    TheFault().n_times = fault.n_times;
    TheFault().throws = fault.throws;
    TheFault().n_thrown = 0;
    TheFault().where = fault.where;
    gate->Notify();
    for (size_t i = 0; i < others.size(); ++i) EXPECT_EQ(OutcomeOf(*others[i]), alone_[i]) << i;
    collected->Wait();
    TheFault().where = Where::kNowhere;
    EXPECT_GE(TheFault().n_thrown, 1);
    EXPECT_EQ(engine_->Stats().n_running_requests, 0);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
    return collected;
  }

  // That the culprit ended by it, after what it had been given before.
  void ExpectEnded(Collected& culprit, const EngineRequest& request, const std::string& what) {
    EXPECT_EQ(culprit.final_event->status.code(), what == "no memory left"
                                                      ? absl::StatusCode::kResourceExhausted
                                                      : absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(culprit.final_event->status.message()), HasSubstr(what));
    EXPECT_EQ(culprit.n_done_calls, 1);
    // The engine serves on, the same request too.
    const Outcome whole = OutcomeOf(*Submit(request));
    for (const auto& [choice, tokens] : culprit.tokens) {
      const std::vector<int32_t>& all = whole.tokens.at(choice);
      ASSERT_LT(tokens.size(), all.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin()));
    }
  }

  std::vector<Outcome> alone_;
};

TEST_F(EngineExceptionTest, EndsItsRequestAloneInWhateverPhaseItIsThrown) {
  for (const Where where : {Where::kPlan, Where::kAttend, Where::kWorker, Where::kAdvance}) {
    SCOPED_TRACE(static_cast<int>(where));
    const int64_t n_before = engine_->Stats().n_preemptions;
    auto culprit = RunTogether(Culprit(), {.where = where});
    ExpectEnded(*culprit, Culprit(), "no memory left");
    EXPECT_EQ(culprit->tokens[0].size(), 11u);
    EXPECT_EQ(engine_->Stats().n_preemptions - n_before, 8);  // everybody was in that step
    culprit = RunTogether(
        Culprit(), {.where = where, .throws = [] { throw std::logic_error("a fault of ours"); }});
    ExpectEnded(*culprit, Culprit(), "a fault of ours");
    culprit = RunTogether(Culprit(), {.where = where, .throws = [] { throw 7; }});
    ExpectEnded(*culprit, Culprit(), "unknown type");
  }
}

TEST_F(EngineExceptionTest, EndsItsRequestAloneWhateverItsMechanismHolds) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    SCOPED_TRACE(variant.name);
    const EngineRequest request = Culprit(variant.options);
    for (int64_t from_token : {100, kCulpritPrompt + 41}) {
      const auto culprit = RunTogether(request, {.from_token = from_token});
      ExpectEnded(*culprit, request, "no memory left");
    }
  }
}

TEST_F(EngineExceptionTest, OfOneChoiceEndsItsRequest) {
  EngineRequest request = Culprit();
  request.n = 3;
  request.sampling.temperature = 1.0f;
  const auto culprit = RunTogether(request, {});
  ExpectEnded(*culprit, request, "no memory left");
  EXPECT_EQ(culprit->tokens[2].size(), 11u);
}

// The fault looks like memory that was short for a moment.
TEST_F(EngineExceptionTest, ThatDoesNotComeBackIsNoticedByNobody) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    SCOPED_TRACE(variant.name);
    const EngineRequest request = Culprit(variant.options);
    const Outcome alone = OutcomeOf(*Submit(request));
    for (const Where where : {Where::kWorker, Where::kAdvance}) {
      EXPECT_EQ(OutcomeOf(*RunTogether(request, {.where = where, .n_times = 1})), alone);
    }
  }
}

TEST_F(EngineExceptionTest, AtARequestsEndOnlyDelaysItsLastEvent) {
  const Outcome alone = OutcomeOf(*Submit(Culprit()));
  EXPECT_EQ(OutcomeOf(*RunTogether(Culprit(), {.where = Where::kReport, .n_times = 1})), alone);
}

TEST_F(EngineExceptionTest, WhileAPrefixIsSavedCostsThePrefixAlone) {
  EngineRequest request = Request(kCulpritPrompt, kNewTokens, 11);
  const auto culprit = RunTogether(request, {.where = Where::kPrefix, .from_token = 0});
  EXPECT_TRUE(culprit->final_event->status.ok());
  EXPECT_EQ(Submit(request)->Wait().n_cached_tokens, 0);
  EXPECT_GT(Submit(request)->Wait().n_cached_tokens, 0);
}

}  // namespace
}  // namespace lowkey
