// Text that a constraint forces takes fewer steps, and masks are computed beside steps. Neither
// changes anything that a request gets: not a bit.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runtime/attention_variants.h"
#include "tests/engine/runtime/drafts_fixture.h"
#include "tests/engine/sampler/form.h"

namespace lowkey {
namespace {

constexpr int32_t kEnd = 3;

class EngineJumpTest : public DraftsFixture {
 protected:
  struct Ways {
    bool jumps = false, begins_masks = false;
  };

  void Start(Ways ways, EngineOptions options = {}) {
    options.jumps_ahead = ways.jumps;
    options.begins_masks = ways.begins_masks;
    DraftsFixture::Start(options);
  }

  static Form::Rules Rules(int n_spellings = 1) {
    return {.vocab_size = TinyConfig().vocab_size,
            .n_field = 3,
            .n_text = 9,
            .n_spellings = n_spellings,
            .n_before_end = 140,
            .end = kEnd};
  }

  // An output over the ends of pages, blocks and forms.
  static EngineRequest Filled(const AttentionOptions& attention, int i) {
    EngineRequest r = Request(40 + 7 * (i % 3), 150, i % 2);
    r.attention = attention;
    r.n = 1 + i % 2;
    r.sampling.temperature = static_cast<float>(i % 3) * 0.5f;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.logprobs = 2;
    r.stop_tokens = {kEnd};
    r.constraint = std::make_shared<FormFactory>(Rules(1 + i % 4 / 2));
    if (i % 4 == 1) {
      r.sampling.frequency_penalty = 0.3f;
      r.sampling.repetition_penalty = 1.2f;
      r.sampling.presence_penalty = -0.5f;
      r.sampling.logit_bias = {{7, 1.5f}, {12, -3.0f}};
    }
    if (i % 4 == 2) r.sampling.top_k = 3;
    if (i % 5 == 3) r.stop_tokens.push_back(Form::Usual(Rules(), 70));  // within forced text
    return r;
  }

  std::vector<std::shared_ptr<Collected>> SubmitAll(const std::vector<EngineRequest>& requests) {
    std::vector<std::shared_ptr<Collected>> all;
    for (const EngineRequest& r : requests) all.push_back(Submit(r));
    return all;
  }
};

TEST_F(EngineJumpTest, EveryMechanismAnswersAsWithoutJumps) {
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 8; ++i) requests.push_back(Filled(v.options, i));
    Start({});
    const auto alone = RunAlone(requests);
    for (const bool begins_masks : {false, true}) {
      for (const DraftMode draft : {DraftMode::kOff, DraftMode::kLookup}) {
        Start({.jumps = true, .begins_masks = begins_masks});
        for (EngineRequest& r : requests) r.draft = draft;
        const auto together = SubmitAll(requests);
        int64_t n_accepted = 0;
        for (size_t i = 0; i < requests.size(); ++i) {
          SCOPED_TRACE(i);
          ExpectSame(*together[i], *alone[i]);
          n_accepted += together[i]->Wait().n_accepted_tokens;
        }
        EXPECT_EQ(engine_->Stats().n_accepted_tokens, n_accepted);
        EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
        if (v.options.mechanism == Mechanism::kLasso) {
          EXPECT_EQ(engine_->Stats().n_drafted_tokens, 0) << "its sums cannot be taken back";
        } else {
          EXPECT_GT(n_accepted, 200);
        }
      }
    }
  }
}

TEST_F(EngineJumpTest, ForcedTextTakesFewerSteps) {
  const auto steps_of = [this](bool jumps) {
    Start({.jumps = jumps});
    const auto collected = Submit(Filled({}, 0));
    EXPECT_EQ(collected->Wait().finish_reasons[0], FinishReason::kStopToken);
    EXPECT_EQ(collected->tokens[0].size(), 141u);
    EXPECT_EQ(engine_->Stats().n_steps, 141 - collected->Wait().n_accepted_tokens);
    return engine_->Stats().n_steps;
  };
  EXPECT_EQ(steps_of(false), 141);
  // Of 12 tokens, 3 are free and 9 are forced: the token behind the forced ones comes with them.
  EXPECT_EQ(steps_of(true), 37);
}

// Two spellings of each forced token: about half of the drafts' first tokens are wrong.
TEST_F(EngineJumpTest, WrongDraftsChangeNothing) {
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(Filled({}, i));
    requests.back().constraint = std::make_shared<FormFactory>(Rules(2));
    requests.back().sampling.temperature = 1;
  }
  Start({});
  const auto alone = RunAlone(requests);
  Start({.jumps = true, .begins_masks = true});
  const auto together = SubmitAll(requests);
  int64_t n_wrong = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(*together[i], *alone[i]);
    n_wrong += together[i]->Wait().n_drafted_tokens - together[i]->Wait().n_accepted_tokens;
  }
  EXPECT_GT(n_wrong, 20);
}

TEST_F(EngineJumpTest, MasksAreCountedAndComputedBesideSteps) {
  Start({.jumps = true, .begins_masks = false});
  (void)Submit(Filled({}, 0))->Wait();
  EXPECT_EQ(engine_->Stats().n_masks, 141);
  EXPECT_EQ(engine_->Stats().n_masks_ahead, 0);
  Start({.jumps = true, .begins_masks = true});
  for (int i = 0; i < 20 && engine_->Stats().n_masks_ahead == 0; ++i) {
    (void)Submit(Filled({}, 0))->Wait();
  }
  EXPECT_GT(engine_->Stats().n_masks_ahead, 0);
  EXPECT_LE(engine_->Stats().n_masks_ahead, engine_->Stats().n_masks);
}

TEST_F(EngineJumpTest, OthersPrefixesAndPreemptionChangeNothing) {
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(Filled({}, 2 * i));  // of one choice
    requests.back().draft = DraftMode::kLookup;
  }
  Start({});
  std::vector<EngineRequest> plain = requests;
  for (EngineRequest& r : plain) r.draft = DraftMode::kOff;
  const auto alone = RunAlone(plain);
  int64_t peak_bytes = 0;
  for (const auto& a : alone) {
    peak_bytes = std::max(peak_bytes, a->Wait().attention.peak_cache_bytes);
  }
  int64_t n_preemptions = 0;
  for (int share = 4; share < 16 && n_preemptions == 0; ++share) {
    EngineOptions options;
    options.cache_bytes = peak_bytes * share / 2;
    Start({.jumps = true, .begins_masks = true}, options);
    // After many short answers long ones are not reserved for.
    for (int i = 0; i < 60; ++i) {
      Submit(Request(3, 200, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
    }
    const auto together = SubmitAll(requests);
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(*together[i], *alone[i]);
    n_preemptions = engine_->Stats().n_preemptions;
  }
  EXPECT_GT(n_preemptions, 0);
}

TEST_F(EngineJumpTest, SinksStopAndCancelInsideForcedText) {
  Start({});
  const auto whole = Submit(Filled({}, 0));
  (void)whole->Wait();
  Start({.jumps = true, .begins_masks = true});
  for (int n = 1; n <= 30; ++n) {
    SCOPED_TRACE(n);
    for (SinkAnswer answer : {SinkAnswer::kStop, SinkAnswer::kCancel}) {
      const auto collected = Submit(Filled({}, 0), [n, answer, seen = 0](int32_t, int32_t) mutable {
        return ++seen == n ? answer : SinkAnswer::kContinue;
      });
      (void)collected->Wait();
      ASSERT_EQ(collected->tokens[0].size(), static_cast<size_t>(n));
      EXPECT_TRUE(std::equal(collected->tokens[0].begin(), collected->tokens[0].end(),
                             whole->tokens[0].begin()));
    }
  }
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineJumpTest, RequestsMayBeCancelledWhileTheirMasksAreComputed) {
  Start({.jumps = true, .begins_masks = true});
  for (int i = 0; i < 40; ++i) {
    const auto collected = Submit(Filled({}, i));
    if (i % 4 == 0) (void)Submit(Filled({}, i + 1))->Wait();
    engine_->Cancel(last_id_);
    (void)collected->Wait();
  }
  (void)Submit(Filled({}, 0));
  engine_.reset();  // with a request in it
}

TEST_F(EngineJumpTest, ADeadEndBehindForcedTextEndsTheRequestWithAnError) {
  for (const bool begins_masks : {false, true}) {
    Start({.jumps = true, .begins_masks = begins_masks});
    EngineRequest request = Filled({}, 0);
    Form::Rules rules = Rules();
    rules.n_before_end = 10;
    rules.end.reset();
    request.constraint = std::make_shared<FormFactory>(rules);
    const auto other = Submit(Request(20, 50));
    const auto collected = Submit(request);
    EXPECT_EQ(collected->Wait().status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(collected->tokens[0].size(), 10u);
    EXPECT_TRUE(other->Wait().status.ok());
  }
}

}  // namespace
}  // namespace lowkey
