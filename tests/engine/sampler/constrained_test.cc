#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/sampler/sampler.h"
#include "tests/engine/sampler/every_seventh.h"

namespace lowkey {
namespace {

constexpr int32_t kVocab = 150;  // the last word of a mask is not full

std::vector<float> Logits(int step) {
  std::vector<float> logits;
  for (int32_t t = 0; t < kVocab; ++t) logits.push_back(std::sin(static_cast<float>(t * 7 + step)));
  return logits;
}

Sampler Constrained(const SamplingOptions& options) {
  Sampler sampler(options, 0, kVocab, {});
  sampler.Constrain(std::make_unique<EverySeventh>(EverySeventh::Rules{.vocab_size = kVocab}));
  return sampler;
}

TEST(ConstrainedSamplerTest, DrawsWithinTheMaskWhateverTheOptions) {
  std::vector<SamplingOptions> all(6);
  all[1].temperature = 1;
  all[2].temperature = 2, all[2].top_k = 3;
  all[3].temperature = 1, all[3].top_p = 0.1f, all[3].min_p = 0.5f;
  all[4].temperature = 1, all[4].repetition_penalty = 1.5f, all[4].presence_penalty = 1;
  all[5].temperature = 1;
  for (int32_t t = 0; t < kVocab; ++t) all[5].logit_bias.push_back({t, t % 2 == 0 ? 100 : -100});
  for (const SamplingOptions& options : all) {
    Sampler sampler = Constrained(options);
    std::vector<int32_t> drawn;
    for (int step = 0; step < 100; ++step) {
      const auto token = sampler.Sample(Logits(step));
      ASSERT_TRUE(token.ok()) << token.status();
      EXPECT_TRUE(EverySeventh::MayCome({.vocab_size = kVocab}, drawn, token->token));
      drawn.push_back(token->token);
    }
  }
}

TEST(ConstrainedSamplerTest, ReportsLogProbabilitiesOfTheRawLogits) {
  SamplingOptions options;
  options.logprobs = 3;
  Sampler sampler = Constrained(options);
  const std::vector<float> logits = Logits(0);
  const auto token = sampler.Sample(logits);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(*token->logprob, LogSoftmaxAt(logits, token->token));
  const std::vector<TokenLogprob> top = TopLogprobs(logits, 3);
  ASSERT_EQ(token->top_logprobs.size(), top.size());
  for (size_t i = 0; i < top.size(); ++i) EXPECT_EQ(token->top_logprobs[i].token, top[i].token);
}

TEST(ConstrainedSamplerTest, ADeadEndIsAnErrorAndCountsNothing) {
  Sampler sampler({}, 0, kVocab, {});
  sampler.Constrain(
      std::make_unique<EverySeventh>(EverySeventh::Rules{.vocab_size = kVocab, .n_before_end = 1}));
  ASSERT_TRUE(sampler.Sample(Logits(0)).ok());
  EXPECT_EQ(sampler.Sample(Logits(1)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(sampler.n_sampled(), 1);
}

TEST(ConstrainedSamplerTest, TokensThatTheModelRulesOutAreNotDrawn) {
  Sampler sampler = Constrained({});
  std::vector<float> logits(kVocab, -std::numeric_limits<float>::infinity());
  logits[1] = 0;  // outside of the mask
  EXPECT_EQ(sampler.Sample(logits).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace lowkey
