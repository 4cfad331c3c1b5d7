// Constrained requests get tokens of their masks, and the same ones whatever else happens.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/engine/sampler/every_seventh.h"

namespace lowkey {
namespace {

constexpr int32_t kEnd = 3;

struct DearRules : EverySeventhRules {
  int64_t n_work = 0;                                // of a mask
  std::shared_ptr<std::atomic<int64_t>> total = {};  // of all masks
};

// Lets through what EverySeventh does, but its masks take work.
class Dear : public RuleConstraint<Dear, DearRules> {
 public:
  using Rules = DearRules;
  using RuleConstraint::RuleConstraint;

  static bool MayCome(const Rules& rules, const std::vector<int32_t>& before, int32_t token) {
    return EverySeventh::MayCome(rules, before, token);
  }
  MaskProgress Prepare(int64_t most_work) override {
    const int64_t n =
        std::clamp<int64_t>(rules().n_work - n_done_, 0, std::max<int64_t>(0, most_work));
    n_done_ += n;
    *rules().total += n;
    return {.is_ready = n_done_ == rules().n_work, .n_work = n};
  }
  absl::StatusOr<absl::Span<const uint64_t>> Mask() override {
    EXPECT_EQ(n_done_, rules().n_work) << "a token is drawn before its mask is ready";
    return RuleConstraint::Mask();
  }
  absl::Status Advance(int32_t token) override {
    n_done_ = 0;
    return RuleConstraint::Advance(token);
  }

 private:
  int64_t n_done_ = 0;
};

class EngineConstraintTest : public EngineTest {
 protected:
  EverySeventh::Rules Rules() const {
    return {.vocab_size = TinyConfig().vocab_size, .n_before_end = 60, .end = kEnd};
  }

  EngineRequest Constrained(int i, int n_new = 150) const {
    EngineRequest r =
        i % 3 == 2 ? AtpRequest(40 + 13 * (i % 4), n_new, i) : Request(20 + 13 * (i % 4), n_new, i);
    r.n = 1 + i % 3;
    r.sampling.temperature = static_cast<float>(i % 2);
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.logprobs = 1;
    r.stop_tokens = {kEnd};
    r.constraint = std::make_shared<EverySeventhFactory>(Rules());
    return r;
  }

  void ExpectWithinMasks(const Collected& collected) const {
    for (const auto& [choice, tokens] : collected.tokens) {
      std::vector<int32_t> before;
      for (int32_t token : tokens) {
        EXPECT_TRUE(EverySeventh::MayCome(Rules(), before, token));
        before.push_back(token);
      }
    }
  }

  static void ExpectSame(Collected& a, Collected& b) {
    EXPECT_EQ(a.Wait().status, b.Wait().status);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.logprobs, b.logprobs);
  }
};

TEST_F(EngineConstraintTest, EveryChoiceHasAStateOfItsOwnAndEndsWhereTheConstraintDoes) {
  Start();
  EngineRequest request = Constrained(1);
  request.n = 3;
  const auto collected = Submit(request);
  ASSERT_TRUE(collected->Wait().status.ok()) << collected->final_event->status;
  ExpectWithinMasks(*collected);
  ASSERT_EQ(collected->tokens.size(), 3u);
  EXPECT_NE(collected->tokens[0], collected->tokens[1]);
  for (int c = 0; c < 3; ++c) {
    const std::vector<int32_t>& tokens = collected->tokens[c];
    EXPECT_EQ(collected->final_event->finish_reasons[c], FinishReason::kStopToken);
    EXPECT_EQ(tokens.back(), kEnd);
  }
}

TEST_F(EngineConstraintTest, OthersAndPrefixesChangeNothing) {
  constexpr int kRequests = 6;
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  std::vector<std::shared_ptr<Collected>> alone, together;
  for (int i = 0; i < kRequests; ++i) {
    alone.push_back(Submit(Constrained(i)));
    alone.back()->Wait();
    ExpectWithinMasks(*alone.back());
  }
  Start();
  for (int round = 0; round < 2; ++round) {  // the second finds its prompts in the cache
    together.clear();
    for (int i = 0; i < kRequests; ++i) {
      together.push_back(Submit(Constrained(i)));
      Submit(Request(30, 40, i));
    }
    for (int i = 0; i < kRequests; ++i) ExpectSame(*together[i], *alone[i]);
  }
}

TEST_F(EngineConstraintTest, DraftsChangeNothing) {
  Start();
  for (int i = 0; i < 4; ++i) {
    EngineRequest request = Constrained(i);
    const auto plain = Submit(request);
    plain->Wait();
    request.draft = DraftMode::kLookup;
    const auto drafted = Submit(request);
    ExpectSame(*drafted, *plain);
    ExpectWithinMasks(*drafted);
  }
}

TEST_F(EngineConstraintTest, PreemptionChangesNothing) {
  constexpr int kRequests = 6;
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  std::vector<std::shared_ptr<Collected>> alone, together;
  int64_t peak_bytes = 0;
  const auto plain = [this](int i) {
    EngineRequest request = Constrained(3 * i);  // mechanism standard
    request.n = 1;
    EverySeventh::Rules rules = Rules();
    rules.n_before_end = 140;  // long enough to outgrow what was reserved
    request.constraint = std::make_shared<EverySeventhFactory>(rules);
    return request;
  };
  for (int i = 0; i < kRequests; ++i) {
    alone.push_back(Submit(plain(i)));
    peak_bytes = std::max(peak_bytes, alone.back()->Wait().attention.peak_cache_bytes);
  }
  int64_t n_preemptions = 0;
  for (int share = 4; share < 16 && n_preemptions == 0; ++share) {
    options.cache_bytes = peak_bytes * share / 2;
    Start(options);
    // After many short answers long ones are not reserved for.
    for (int i = 0; i < 60; ++i) {
      Submit(Request(3, 200, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
    }
    together.clear();
    for (int i = 0; i < kRequests; ++i) together.push_back(Submit(plain(i)));
    for (int i = 0; i < kRequests; ++i) together[i]->Wait();
    n_preemptions = engine_->Stats().n_preemptions;
  }
  EXPECT_GT(n_preemptions, 0);
  for (int i = 0; i < kRequests; ++i) ExpectSame(*together[i], *alone[i]);
}

// Six requests need five steps' budgets for each mask: they sit steps out, a request with cheap
// masks goes on, and no step has more work than the budget. All get the same tokens.
TEST_F(EngineConstraintTest, MasksThatNeedMoreThanTheBudgetDelayTheirOwnRequestsAlone) {
  constexpr int kDear = 6, kTokens = 20;
  constexpr int64_t kBudget = 1000;
  const auto total = std::make_shared<std::atomic<int64_t>>(0);
  const auto request = [&](int i) {
    EngineRequest r = Request(20 + i, kTokens, i);
    r.n = i == 1 ? 2 : 1;
    DearRules rules;
    rules.vocab_size = TinyConfig().vocab_size;
    rules.n_work = i < kDear ? 5 * kBudget : 10;
    rules.total = total;
    r.constraint = std::make_shared<RuleConstraintFactory<Dear, DearRules>>(rules);
    return r;
  };
  EngineOptions options;
  options.keeps_prefixes = false;
  options.begins_masks = false;
  Start(options);
  std::vector<std::shared_ptr<Collected>> alone, together;
  for (int i = 0; i <= kDear; ++i) {
    alone.push_back(Submit(request(i)));
    alone.back()->Wait();
  }
  EXPECT_EQ(engine_->Stats().n_mask_waits, 0);

  options.mask_work_per_step = kBudget;
  Start(options);
  std::optional<int64_t> before;  // the last token of a request without a constraint
  const auto plain = Submit(Request(20, 200, 9), [&](int32_t, int32_t) {
    EXPECT_LE(*total - before.value_or(*total), kBudget);
    before = *total;
    return SinkAnswer::kContinue;
  });
  int n_dear_tokens = 0, n_before_last_cheap = 0;
  for (int i = 0; i <= kDear; ++i) {
    together.push_back(Submit(request(i), [&, i](int32_t, int32_t) {
      (i < kDear ? n_dear_tokens : n_before_last_cheap) = n_dear_tokens + (i < kDear ? 1 : 0);
      return SinkAnswer::kContinue;
    }));
  }
  for (int i = 0; i <= kDear; ++i) ExpectSame(*together[i], *alone[i]);
  EXPECT_TRUE(plain->Wait().status.ok());
  EXPECT_GT(engine_->Stats().n_mask_waits, kDear * kTokens);
  EXPECT_LT(n_before_last_cheap, kDear * kTokens / 2);
}

TEST_F(EngineConstraintTest, ADeadEndEndsTheRequestWithAnErrorAndNoOther) {
  Start();
  EngineRequest request = Constrained(0);
  request.constraint = std::make_shared<EverySeventhFactory>(EverySeventh::Rules{
      .vocab_size = TinyConfig().vocab_size, .n_before_end = 5, .end = std::nullopt});
  const auto other = Submit(Request(20, 50));
  const auto collected = Submit(request);
  EXPECT_EQ(collected->Wait().status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(collected->tokens[0].size(), 5u);
  EXPECT_TRUE(other->Wait().status.ok());
}

TEST_F(EngineConstraintTest, AConstraintOfAnotherVocabularyIsRefused) {
  Start();
  EngineRequest request = Constrained(0);
  request.constraint = std::make_shared<EverySeventhFactory>(EverySeventh::Rules{.vocab_size = 7});
  const absl::Status status = Refused(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("constraint: for a vocabulary of 7 tokens"), std::string::npos);
}

}  // namespace
}  // namespace lowkey
