#include "engine/sampler/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> Random(int64_t n, float scale) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

TEST(MaxLogit, FindsTheLargestWhateverTheSigns) {
  EXPECT_EQ(MaxLogit({{-3.0f, -1.5f, -2.0f}}), -1.5f);
  EXPECT_EQ(MaxLogit({{-3.0f, 0.0f, 7.25f, 2.0f}}), 7.25f);
  EXPECT_EQ(MaxLogit({{-kInf, -3e38f, -kInf}}), -3e38f);
  const std::vector<float> largest = {std::numeric_limits<float>::max()};
  EXPECT_EQ(MaxLogit(largest), largest[0]);
  const std::vector<float> x = Random(1001, 3.0f);
  EXPECT_EQ(MaxLogit(x), *std::max_element(x.begin(), x.end()));
}

TEST(MaxLogit, RefusesNanInfinityNothingAndAllMinusInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(MaxLogit({}), std::nullopt);
  EXPECT_EQ(MaxLogit({{-kInf, -kInf}}), std::nullopt);
  for (float bad : {nan, -nan, std::copysign(nan, -1.0f), kInf}) {
    EXPECT_EQ(MaxLogit({{1.0f, bad, 2.0f}}), std::nullopt) << bad;
    EXPECT_EQ(MaxLogit(std::vector<float>{bad}), std::nullopt) << bad;
  }
}

TEST(FirstIdOf, TiesGoToTheLowestIdSignedZerosIncluded) {
  const std::vector<float> x = {-1.0f, -0.0f, 0.0f, -2.0f};
  EXPECT_EQ(FirstIdOf(x, *MaxLogit(x)), 1);
  EXPECT_EQ(FirstIdOf({{3.0f, 5.0f, 5.0f}}, 5.0f), 1);
}

TEST(ExpWeights, AgreesWithTheLibraryOverItsWholeRange) {
  std::vector<float> x;
  for (int i = 0; i <= 87000; ++i) x.push_back(-1e-3f * i);
  std::vector<float> weights;
  ExpWeights(x, 0.0f, 1.0f, weights);
  EXPECT_EQ(weights[0], 1.0f);
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(weights[i] / expected, 1.0, 3e-7) << x[i];
  }
}

TEST(ExpWeights, TemperatureDividesAndFarLogitsVanish) {
  std::vector<float> weights;
  ExpWeights({{2.0f, 1.0f, -kInf, -1000.0f}}, 2.0f, 0.5f, weights);
  EXPECT_EQ(weights[0], 1.0f);
  EXPECT_NEAR(weights[1], std::exp(-2.0), 1e-7);
  EXPECT_EQ(weights[2], 0.0f);
  EXPECT_EQ(weights[3], 0.0f);
  // The smallest temperature that is a float leaves the largest logits alone.
  ExpWeights({{2.0f, 1.999f, 2.0f}}, 2.0f, std::numeric_limits<float>::denorm_min(), weights);
  EXPECT_EQ(weights, (std::vector<float>{1.0f, 0.0f, 1.0f}));
}

TEST(LogSumExp, AgreesWithDoublePrecision) {
  for (float scale : {0.01f, 1.0f, 30.0f}) {
    const std::vector<float> x = Random(32003, scale);
    const float max = *MaxLogit(x);
    double sum = 0.0;
    for (float v : x) sum += std::exp(static_cast<double>(v) - max);
    EXPECT_NEAR(LogSumExp(x, max), max + std::log(sum), 1e-6 * (1.0 + std::abs(max)));
  }
}

TEST(SelectTop, EqualsSortingForEveryK) {
  std::vector<float> x = Random(700, 1.0f);
  for (float& v : x) v = std::round(v * 4.0f) / 4.0f;  // many ties
  std::vector<Candidate> sorted;
  for (int32_t i = 0; i < 700; ++i) sorted.push_back({x[i], i});
  std::sort(sorted.begin(), sorted.end(), ComesFirst);
  for (int32_t k : {1, 2, 5, 20, 256, 257, 500, 699, 700}) {  // a heap up to 256
    std::vector<Candidate> top;
    SelectTop(x, k, top);
    ASSERT_EQ(static_cast<int32_t>(top.size()), k);
    std::sort(top.begin(), top.end(), ComesFirst);
    for (int32_t i = 0; i < k; ++i) ASSERT_EQ(top[i].token, sorted[i].token) << k << " " << i;
  }
}

}  // namespace
}  // namespace lowkey
