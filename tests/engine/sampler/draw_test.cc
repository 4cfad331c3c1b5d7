#include "engine/sampler/draw.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t Draw(const std::vector<float>& logits, const DrawFilters& filters, double uniform,
             float temperature = 1.0f) {
  DrawScratch scratch;
  return DrawToken({logits, *MaxLogit(logits), temperature, uniform}, filters, scratch);
}

// The tokens that some uniform number draws.
std::map<int32_t, int> Support(const std::vector<float>& logits, const DrawFilters& filters) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < 2000; ++i) ++counts[Draw(logits, filters, (i + 0.5) / 2000)];
  return counts;
}

std::vector<int32_t> Tokens(const std::map<int32_t, int>& counts) {
  std::vector<int32_t> tokens;
  for (const auto& [token, count] : counts) tokens.push_back(token);
  return tokens;
}

std::vector<float> LogOf(const std::vector<double>& p) {
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  return logits;
}

TEST(DrawToken, UniformNumberPicksByCumulativeProbabilityInOrderOfId) {
  const std::vector<float> logits = LogOf({0.25, 0.5, 0.25});
  EXPECT_EQ(Draw(logits, {}, 0.0), 0);
  EXPECT_EQ(Draw(logits, {}, 0.2499), 0);
  EXPECT_EQ(Draw(logits, {}, 0.2501), 1);
  EXPECT_EQ(Draw(logits, {}, 0.7499), 1);
  EXPECT_EQ(Draw(logits, {}, 0.7501), 2);
  EXPECT_EQ(Draw(logits, {}, std::nextafter(1.0, 0.0)), 2);
}

TEST(DrawToken, NeverDrawsAnImpossibleToken) {
  std::vector<float> logits(1000, -kInf);
  logits[300] = 1.0f, logits[700] = 1.0f;
  for (const DrawFilters& filters : {DrawFilters{}, DrawFilters{.top_k = 900},
                                     DrawFilters{.top_p = 0.9999f}, DrawFilters{.min_p = 1e-30f}}) {
    EXPECT_EQ(Tokens(Support(logits, filters)), (std::vector<int32_t>{300, 700}));
    EXPECT_EQ(Draw(logits, filters, 0.0), 300);
    EXPECT_EQ(Draw(logits, filters, std::nextafter(1.0, 0.0)), 700);
  }
}

TEST(DrawToken, LargeVocabularyMatchesItsProbabilitiesBlockByBlock) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(5000);
  for (float& x : logits) x = normal(rng);
  std::vector<double> cumulative;
  double sum = 0.0;
  for (float x : logits) cumulative.push_back(sum += std::exp(static_cast<double>(x)));
  for (int i = 0; i < 500; ++i) {
    const double uniform = (i + 0.5) / 500;
    const int32_t token = Draw(logits, {}, uniform);
    const double low = token == 0 ? 0.0 : cumulative[token - 1] / sum;
    EXPECT_GE(uniform, low - 1e-6);
    EXPECT_LE(uniform, cumulative[token] / sum + 1e-6);
  }
}

TEST(DrawToken, TopKKeepsTheMostLikelyAndTheLowestIdsAmongEquals) {
  EXPECT_EQ(Tokens(Support({1.0f, 3.0f, 2.0f, 3.0f}, {.top_k = 2})), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Tokens(Support({1.0f, 1.0f, 1.0f, 1.0f}, {.top_k = 3})),
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Tokens(Support({1.0f, 2.0f, 2.0f}, {.top_k = 1})), (std::vector<int32_t>{1}));
  EXPECT_EQ(Support({1.0f, 2.0f, 2.0f}, {.top_k = 3}), Support({1.0f, 2.0f, 2.0f}, {}));
}

TEST(DrawToken, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = LogOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(Tokens(Support(logits, {.top_p = 0.39f})), (std::vector<int32_t>{1}));
  EXPECT_EQ(Tokens(Support(logits, {.top_p = 0.41f})), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Tokens(Support(logits, {.top_p = 0.71f})), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(Tokens(Support(logits, {.top_p = 0.91f})), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Tokens(Support(logits, {.top_p = 1e-9f})), (std::vector<int32_t>{1}));
}

TEST(DrawToken, TopPOverManyEqualTokensKeepsTheirLowestIds) {
  const std::vector<float> logits(1000, 0.5f);  // past the first sorted fronts
  const std::vector<int32_t> tokens = Tokens(Support(logits, {.top_p = 0.7995f}));
  ASSERT_EQ(tokens.size(), 800u);
  EXPECT_EQ(tokens.back(), 799);
}

TEST(DrawToken, MinPDropsWhatIsBelowItsShareOfTheLargest) {
  const std::vector<float> logits = LogOf({0.1, 0.4, 0.19, 0.31});
  EXPECT_EQ(Tokens(Support(logits, {.min_p = 0.5f})), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(Tokens(Support(logits, {.min_p = 0.2f})), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Tokens(Support(logits, {.min_p = 0.999f})), (std::vector<int32_t>{1}));
}

TEST(DrawToken, TopPCountsOverWhatTopKLeft) {
  // 0.4 is 0.57 of 0.4 and 0.3: enough for 0.5, which 0.4 of the whole would not be.
  const std::vector<float> logits = LogOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(Tokens(Support(logits, {.top_k = 2, .top_p = 0.5f})), (std::vector<int32_t>{1}));
  EXPECT_EQ(Tokens(Support(logits, {.top_k = 2, .top_p = 0.6f})), (std::vector<int32_t>{1, 3}));
}

TEST(DrawToken, FiltersThatKeepEverythingChangeNoDraw) {
  const std::vector<float> logits = LogOf({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(Support(logits, {.min_p = 1e-6f}), Support(logits, {}));
  EXPECT_EQ(Support(logits, {.top_p = 0.99999f}), Support(logits, {}));
}

TEST(DrawToken, KeptTokensAreRenormalized) {
  const std::map<int32_t, int> counts = Support(LogOf({0.1, 0.4, 0.2, 0.3}), {.top_k = 2});
  EXPECT_NEAR(counts.at(1), 2000 * 4.0 / 7.0, 1.5);
  EXPECT_NEAR(counts.at(3), 2000 * 3.0 / 7.0, 1.5);
}

TEST(DrawToken, LowTemperatureLeavesTheLargestHighFlattens) {
  const std::vector<float> logits = {1.0f, 2.0f, 1.5f};
  EXPECT_EQ(Draw(logits, {}, 0.999, 1e-3f), 1);
  EXPECT_EQ(Draw(logits, {}, 0.001, 1e-3f), 1);
  const double p0 = std::exp(-0.5) / (std::exp(-0.5) + 1.0 + std::exp(-0.25));
  EXPECT_EQ(Draw(logits, {}, p0 - 1e-4, 2.0f), 0);
  EXPECT_EQ(Draw(logits, {}, p0 + 1e-4, 2.0f), 1);
}

}  // namespace
}  // namespace lowkey
