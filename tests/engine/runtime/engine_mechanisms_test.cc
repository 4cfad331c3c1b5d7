// Mechanisms of a bundle through the engine, and the choice among them.
#include <vector>

#include "engine/loader/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(EngineTest, RefusesMechanismsWithoutWeightsAndSequencesLongerThanTheirs) {
  Start();
  EngineRequest request = Request(200, 40);
  request.attention.mechanism = Mechanism::kSuper;
  EXPECT_EQ(Refused(request),
            absl::OutOfRangeError("prompt + max_new_tokens: 240 tokens, expected at most 230 with "
                                  "mechanism super"));
  const TinyModel bare;
  auto engine = CreateEngine(OpenCheckpoint(bare.path()).value(), {}, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine_ = *std::move(engine);
  EXPECT_EQ(Refused(request),
            absl::FailedPreconditionError("attention.mechanism: super needs weights that this "
                                          "model does not bring (lowkey.json)"));
  std::vector<Mechanism> available;
  for (const MechanismInfo& info : engine_->mechanisms()) available.push_back(info.id);
  EXPECT_THAT(available,
              ElementsAre(Mechanism::kStandard, Mechanism::kAtp, Mechanism::kTaylorShift));
}

TEST_F(EngineTest, ChoosesAMechanismByItsRulesAndSaysWhy) {
  EngineOptions options;
  // Slow softmax makes everything else the cheaper one from some length on.
  options.profile.linear = {{1, 1e12}};
  options.profile.rates["standard"] = {{1, 1e6, 1e6}};
  options.profile.rates["efficient"] = {{1, 1e12, 1e12}};
  Start(options);
  EngineRequest request = Request(150, 10);
  request.selection = SelectionRules{};
  request.selection->objective = Objective::kLatency;
  request.selection->allowed = {Mechanism::kStandard, Mechanism::kEfficient};
  const auto chosen = Submit(request);
  const FinalEvent event = chosen->Wait();
  EXPECT_TRUE(event.status.ok()) << event.status;
  EXPECT_EQ(event.attention.mechanism, Mechanism::kEfficient);
  EXPECT_THAT(event.attention.reason, HasSubstr("efficient"));
  EXPECT_THAT(event.attention.reason, HasSubstr("(taken)"));
  EngineRequest named = Request(150, 10);
  named.attention.mechanism = Mechanism::kEfficient;
  const auto same = Submit(named);
  EXPECT_EQ(same->Wait().attention.reason, "");
  EXPECT_EQ(same->tokens, chosen->tokens);
  // taylorshift runs on any model, but is not chosen for one that was not made for it.
  request.selection->allowed = {Mechanism::kTaylorShift};
  EXPECT_EQ(Refused(request).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EngineTest, TheQualityOfABundleIsThatOfTheVariantItWasTrainedFor) {
  const TinyModel shifted;
  RandomBundleOptions bundle{TinyConfig(), {}, 1};
  bundle.mechanisms = {
      {.mechanism = Mechanism::kTaylorShift, .lora_rank = 2, .perplexity_ratio = 1.01}};
  ASSERT_TRUE(WriteRandomBundle(shifted.path(), bundle).ok());
  auto engine = CreateEngine(OpenCheckpoint(shifted.path()).value(), {}, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine_ = *std::move(engine);
  EngineRequest request = Request(20, 5);
  request.selection = SelectionRules{};
  request.selection->allowed = {Mechanism::kTaylorShift};
  EXPECT_EQ(Submit(request)->Wait().attention.mechanism, Mechanism::kTaylorShift);
  request.attention.taylorshift.variant = TaylorVariant::kPlain;
  EXPECT_EQ(Refused(request).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EngineTest, ChoicesOfEveryBundledMechanismShareThePrompt) {
  Start();
  for (const MechanismInfo& info : engine_->mechanisms()) {
    EngineRequest request = Request(70, 12);
    request.attention.mechanism = info.id;
    request.sampling.temperature = 1.0f;
    request.sampling.seed = 3;
    const auto alone = Submit(request);
    EXPECT_TRUE(alone->Wait().status.ok());
    request.n = 3;
    const auto all = Submit(request);
    const FinalEvent event = all->Wait();
    EXPECT_TRUE(event.status.ok()) << event.status;
    EXPECT_EQ(all->tokens[0], alone->tokens[0]) << MechanismName(info.id);
    EXPECT_NE(all->tokens[0], all->tokens[1]) << MechanismName(info.id);
    EXPECT_GT(event.attention.cache_bytes, 0);
  }
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

}  // namespace
}  // namespace lowkey
