#include "engine/sampler/sampler.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kVocab = 50;

std::vector<float> Random(int32_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

int32_t SampleOne(const SamplingOptions& options, const std::vector<float>& logits,
                  const std::vector<int32_t>& prompt = {}) {
  Sampler sampler(options, 0, static_cast<int32_t>(logits.size()), prompt);
  const auto sampled = sampler.Sample(logits);
  EXPECT_TRUE(sampled.ok()) << sampled.status();
  return sampled.ok() ? sampled->token : -1;
}

std::vector<int32_t> SampleMany(Sampler& sampler, const std::vector<float>& logits, int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(sampler.Sample(logits)->token);
  return tokens;
}

TEST(ValidateSamplingOptions, AcceptsDefaultsAndBothEndsOfEachRange) {
  const std::function<void(SamplingOptions&)> edits[] = {
      [](SamplingOptions&) {},
      [](SamplingOptions& o) { o.temperature = 2.0f; },
      [](SamplingOptions& o) { o.top_k = kVocab; },
      [](SamplingOptions& o) { o.top_p = 1e-30f; },
      [](SamplingOptions& o) { o.min_p = 0.999f; },
      [](SamplingOptions& o) { o.repetition_penalty = 2.0f; },
      [](SamplingOptions& o) { o.repetition_penalty = 1e-30f; },
      [](SamplingOptions& o) { o.presence_penalty = -2.0f, o.frequency_penalty = 2.0f; },
      [](SamplingOptions& o) {
        o.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}};
      },
      [](SamplingOptions& o) { o.logprobs = 0; },
      [](SamplingOptions& o) { o.logprobs = 20; },
  };
  for (const auto& edit : edits) {
    SamplingOptions options;
    edit(options);
    EXPECT_TRUE(ValidateSamplingOptions(options, kVocab).ok())
        << ValidateSamplingOptions(options, kVocab);
  }
}

TEST(ValidateSamplingOptions, NamesFieldValueAndRange) {
  const std::pair<std::function<void(SamplingOptions&)>, const char*> cases[] = {
      {[](auto& o) { o.temperature = -0.5f; }, "temperature: -0.5, expected a number in [0, 2]"},
      {[](auto& o) { o.temperature = 2.5f; }, "temperature: 2.5, expected a number in [0, 2]"},
      {[](auto& o) { o.temperature = NAN; }, "temperature: nan, expected a number in [0, 2]"},
      {[](auto& o) { o.top_k = -1; }, "top_k: -1, expected 0..50"},
      {[](auto& o) { o.top_k = 51; }, "top_k: 51, expected 0..50"},
      {[](auto& o) { o.top_p = 0.0f; }, "top_p: 0, expected a number in (0, 1]"},
      {[](auto& o) { o.top_p = NAN; }, "top_p: nan, expected a number in (0, 1]"},
      {[](auto& o) { o.min_p = 1.0f; }, "min_p: 1, expected a number in [0, 1)"},
      {[](auto& o) { o.repetition_penalty = 0.0f; },
       "repetition_penalty: 0, expected a number in (0, 2]"},
      {[](auto& o) { o.presence_penalty = 3.0f; },
       "presence_penalty: 3, expected a number in [-2, 2]"},
      {[](auto& o) { o.frequency_penalty = kInf; },
       "frequency_penalty: inf, expected a number in [-2, 2]"},
      {[](auto& o) { o.logprobs = 21; }, "logprobs: 21, expected 0..20"},
      {[](auto& o) { o.logprobs = -1; }, "logprobs: -1, expected 0..20"},
      {[](auto& o) {
         o.logit_bias = {{50, 1.0f}};
       },
       "logit_bias: token: 50, expected 0..49"},
      {[](auto& o) {
         o.logit_bias = {{3, 101.0f}};
       },
       "logit_bias: token 3: 101, expected a number in [-100, 100]"},
      {[](auto& o) {
         o.logit_bias = {{3, NAN}};
       },
       "logit_bias: token 3: nan, expected a number in [-100, 100]"},
      {[](auto& o) {
         o.logit_bias = {{3, 1.0f}, {3, 2.0f}};
       },
       "logit_bias: token 3 appears twice, expected distinct ids"},
      {[](auto& o) { o.logit_bias.resize(1025); },
       "logit_bias: 1025 entries, expected at most 1024"},
  };
  for (const auto& [edit, message] : cases) {
    SamplingOptions options;
    edit(options);
    const absl::Status status = ValidateSamplingOptions(options, kVocab);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
}

// The documented generator, written out once more.
TEST(UniformDraw, IsTheDocumentedFunction) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  const uint64_t g = 0x9e3779b97f4a7c15u;
  const uint64_t z = mix(mix(mix(42 + g) + g * 4) + g * 8);
  EXPECT_EQ(UniformDraw(42, 3, 7), static_cast<double>(z >> 11) / 9007199254740992.0);
}

TEST(UniformDraw, IsUniformAlongStepsChoicesAndSeeds) {
  const std::function<double(int)> streams[] = {
      [](int i) { return UniformDraw(1, 0, i); },
      [](int i) { return UniformDraw(1, i, 0); },
      [](int i) { return UniformDraw(i, 0, 0); },
      [](int i) { return UniformDraw(-i, 2, i); },
  };
  for (const auto& stream : streams) {
    constexpr int kBins = 20, kDraws = 20000;
    std::vector<int> bins(kBins);
    double product = 0.0;
    for (int i = 0; i < kDraws; ++i) {
      const double u = stream(i);
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++bins[static_cast<int>(u * kBins)];
      product += (u - 0.5) * (stream(i + 1) - 0.5);
    }
    double chi2 = 0.0;
    for (int n : bins) chi2 += std::pow(n - kDraws / kBins, 2.0) / (kDraws / kBins);
    EXPECT_LT(chi2, 50.0);                         // 19 degrees of freedom: 1 in 10,000 above
    EXPECT_LT(std::abs(product / kDraws), 0.003);  // neighbors are uncorrelated
  }
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(SampleOne({}, {1.0f, 4.0f, 2.0f, 4.0f}), 1);
  EXPECT_EQ(SampleOne({}, {-kInf, -kInf, -5.0f}), 2);
  SamplingOptions options;
  options.top_k = 1, options.top_p = 0.01f, options.seed = 9;  // not read when greedy
  EXPECT_EQ(SampleOne(options, {1.0f, 4.0f, 2.0f, 4.0f}), 1);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  SamplingOptions options;
  options.temperature = 0.8f;
  options.seed = 1234;
  const std::vector<float> logits = Random(12, 4);
  Sampler sampler(options, 0, 12, {});
  constexpr int kDraws = 20000;
  std::vector<int> counts(12);
  for (int32_t token : SampleMany(sampler, logits, kDraws)) ++counts[token];
  double sum = 0.0, chi2 = 0.0;
  for (float x : logits) sum += std::exp(x / 0.8);
  for (int i = 0; i < 12; ++i) {
    const double expected = kDraws * std::exp(logits[i] / 0.8) / sum;
    chi2 += std::pow(counts[i] - expected, 2.0) / expected;
  }
  EXPECT_LT(chi2, 37.0);  // 11 degrees of freedom: 1 in 10,000 above
  EXPECT_EQ(sampler.n_sampled(), kDraws);
}

TEST(Sampler, SameSeedSameTokensOtherSeedOrChoiceOthers) {
  SamplingOptions options;
  options.temperature = 1.0f;
  options.seed = 77;
  const std::vector<float> logits = Random(kVocab, 1);
  Sampler a(options, 0, kVocab, {}), b(options, 0, kVocab, {}),
      other_choice(options, 1, kVocab, {});
  options.seed = 78;
  Sampler other_seed(options, 0, kVocab, {});
  const std::vector<int32_t> tokens = SampleMany(a, logits, 64);
  EXPECT_EQ(tokens, SampleMany(b, logits, 64));
  EXPECT_NE(tokens, SampleMany(other_choice, logits, 64));
  EXPECT_NE(tokens, SampleMany(other_seed, logits, 64));
}

TEST(Sampler, ADrawDependsOnItsStepNotOnEarlierLogits) {
  SamplingOptions options;
  options.temperature = 1.0f;
  Sampler a(options, 0, kVocab, {}), b(options, 0, kVocab, {});
  SampleMany(a, Random(kVocab, 1), 5);
  SampleMany(b, Random(kVocab, 2), 5);
  const std::vector<float> logits = Random(kVocab, 3);
  EXPECT_EQ(SampleMany(a, logits, 20), SampleMany(b, logits, 20));
}

TEST(Sampler, LogitBiasForcesAndForbids) {
  SamplingOptions options;
  options.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(SampleOne(options, {1.0f, 4.0f, 2.0f}), 2);
  options.logit_bias = {{1, -100.0f}};
  EXPECT_EQ(SampleOne(options, {1.0f, 4.0f, 2.0f}), 2);
  options.logit_bias = {{1, 100.0f}};
  EXPECT_EQ(SampleOne(options, {1.0f, -kInf, 2.0f}), 2);  // impossible stays impossible
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeOfPromptAndOutput) {
  SamplingOptions options;
  options.repetition_penalty = 2.0f;
  EXPECT_EQ(SampleOne(options, {3.0f, 2.0f}, {0, 0}), 1);  // 1.5 < 2
  EXPECT_EQ(SampleOne(options, {-1.0f, -1.5f}, {0}), 1);   // -2 < -1.5
  EXPECT_EQ(SampleOne(options, {3.0f, 1.25f}, {0}), 0);    // 1.5 > 1.25, once however often
  Sampler sampler(options, 0, 3, std::vector<int32_t>{});
  EXPECT_EQ(SampleMany(sampler, {4.0f, 3.0f, 2.5f}, 4), (std::vector<int32_t>{0, 1, 2, 0}));
  options.repetition_penalty = 0.5f;
  EXPECT_EQ(SampleOne(options, {3.0f, 2.0f}, {1}), 1);
}

TEST(Sampler, RepetitionPenaltyThatOverflowsStillChooses) {
  SamplingOptions options;
  options.repetition_penalty = 1e-38f;
  EXPECT_EQ(SampleOne(options, {3.0f, 2.0f, 1.0f}, {1, 2}), 1);
  options.temperature = 1.0f;
  EXPECT_NE(SampleOne(options, {3.0f, 2.0f, 1.0f}, {1, 2}), 0);
}

TEST(Sampler, PresencePenaltyCountsOutputOnce) {
  SamplingOptions options;
  options.presence_penalty = 1.0f;
  Sampler sampler(options, 0, 2, std::vector<int32_t>{0, 0});  // the prompt does not count
  EXPECT_EQ(SampleMany(sampler, {3.0f, 2.5f}, 4), (std::vector<int32_t>{0, 1, 0, 0}));
}

TEST(Sampler, FrequencyPenaltyGrowsWithTheCount) {
  SamplingOptions options;
  options.frequency_penalty = 0.5f;
  Sampler sampler(options, 0, 2, std::vector<int32_t>{0, 0});
  EXPECT_EQ(SampleMany(sampler, {3.0f, 1.75f}, 5), (std::vector<int32_t>{0, 0, 0, 1, 0}));
}

TEST(Sampler, NegativePenaltiesEncourageRepetition) {
  SamplingOptions options;
  options.presence_penalty = -2.0f;
  Sampler sampler(options, 0, 2, {});
  EXPECT_EQ(sampler.Sample({{2.0f, 1.0f}})->token, 0);
  EXPECT_EQ(sampler.Sample({{1.0f, 2.0f}})->token, 0);
}

TEST(Sampler, BadLogitsAreInternalErrorsAndCountNothing) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingOptions options;
    options.temperature = temperature;
    options.presence_penalty = 1.0f;
    Sampler sampler(options, 0, 3, {});
    for (const std::vector<float>& logits :
         {std::vector<float>{1.0f, NAN, 0.0f}, std::vector<float>{1.0f, -NAN, 0.0f},
          std::vector<float>{kInf, 0.0f, 0.0f}, std::vector<float>{-kInf, -kInf, -kInf}}) {
      const auto sampled = sampler.Sample(logits);
      EXPECT_EQ(sampled.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(sampled.status().message()), HasSubstr("output token 0"));
    }
    EXPECT_EQ(sampler.n_sampled(), 0);
  }
}

TEST(Sampler, LogprobsAreOfTheRawLogits) {
  SamplingOptions options;
  options.temperature = 0.1f;
  options.logit_bias = {{1, 100.0f}};
  options.logprobs = 2;
  Sampler sampler(options, 0, 4, {});
  const std::vector<float> logits = {2.0f, 0.5f, 2.0f, 1.0f};
  const auto sampled = sampler.Sample(logits);
  ASSERT_TRUE(sampled.ok());
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  EXPECT_EQ(sampled->token, 1);
  EXPECT_NEAR(*sampled->logprob, 0.5 - std::log(sum), 1e-6);
  ASSERT_EQ(sampled->top_logprobs.size(), 2u);
  EXPECT_EQ(sampled->top_logprobs[0].token, 0);
  EXPECT_EQ(sampled->top_logprobs[1].token, 2);
  EXPECT_NEAR(sampled->top_logprobs[1].logprob, 2.0 - std::log(sum), 1e-6);
}

TEST(Sampler, LogprobsOfZeroReportTheDrawnTokenAlone) {
  SamplingOptions options;
  Sampler without(options, 0, 3, {});
  EXPECT_FALSE(without.Sample({{1.0f, 2.0f, 3.0f}})->logprob.has_value());
  options.logprobs = 0;
  Sampler with(options, 0, 3, {});
  const auto sampled = with.Sample({{1.0f, 2.0f, 3.0f}});
  EXPECT_TRUE(sampled->logprob.has_value());
  EXPECT_TRUE(sampled->top_logprobs.empty());
}

TEST(LogSoftmaxAt, EqualsDoublePrecision) {
  const std::vector<float> logits = Random(32000, 6);
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  for (int32_t token : {0, 17, 31999}) {
    EXPECT_NEAR(LogSoftmaxAt(logits, token), logits[token] - std::log(sum), 2e-6);
  }
}

TEST(LogSoftmaxAt, HugeImpossibleAndBadLogits) {
  EXPECT_NEAR(LogSoftmaxAt({{1e30f, 1e30f}}, 1), 0.0, 1.0);  // no overflow
  EXPECT_EQ(LogSoftmaxAt({{1.0f, -kInf}}, 1), -kInf);
  EXPECT_EQ(LogSoftmaxAt({{1.0f, -kInf}}, 0), 0.0f);
  EXPECT_TRUE(std::isnan(LogSoftmaxAt({{1.0f, NAN}}, 0)));
}

TEST(TopLogprobs, MostLikelyFirstLowestIdAmongEquals) {
  const std::vector<TokenLogprob> top = TopLogprobs({{1.0f, 3.0f, 3.0f, 2.0f}}, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 3);
  EXPECT_FLOAT_EQ(top[0].logprob, LogSoftmaxAt({{1.0f, 3.0f, 3.0f, 2.0f}}, 1));
  EXPECT_EQ(TopLogprobs({{1.0f, 2.0f}}, 20).size(), 2u);
  EXPECT_TRUE(TopLogprobs({{1.0f, 2.0f}}, 0).empty());
  EXPECT_TRUE(TopLogprobs({{1.0f, NAN}}, 2).empty());
}

}  // namespace
}  // namespace lowkey
