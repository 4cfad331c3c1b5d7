#include "engine/attention/atp/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

std::vector<int32_t> Sorted(const std::vector<float>& weights, int64_t n_wanted) {
  std::vector<int32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return weights[a] > weights[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(n_wanted)));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> Selected(TopTokens& top, const std::vector<float>& weights, int64_t n_wanted) {
  const absl::Span<const int32_t> chosen = top.Select(weights, n_wanted);
  return {chosen.begin(), chosen.end()};
}

TEST(TopTokens, AreThoseOfASort) {
  TopTokens top;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (size_t n : {1u, 15u, 60u, 64u, 255u, 256u, 257u, 508u, 2000u, 8188u}) {
    std::vector<float> weights(n);
    for (float& w : weights) w = std::exp(4 * normal(rng));
    for (int64_t n_wanted : {1, 2, 16, 31, 64, 300, 4096}) {
      EXPECT_EQ(Selected(top, weights, n_wanted), Sorted(weights, n_wanted))
          << n_wanted << " of " << n;
    }
  }
}

TEST(TopTokens, AreFewerWhereFewReachTheLeast) {
  TopTokens top;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> weights(2000);
  for (float& w : weights) w = std::exp(4 * normal(rng));
  for (const float least : {0.0f, 1.0f, 100.0f, 1e30f}) {
    const auto n_reach = std::count_if(weights.begin(), weights.end(),
                                       [&](const float weight) { return weight >= least; });
    for (const int64_t n_wanted : {1, 64, 1000, 4096}) {
      const auto chosen = top.Select(weights, n_wanted, least);
      EXPECT_EQ(std::vector<int32_t>(chosen.begin(), chosen.end()),
                Sorted(weights, std::min<int64_t>(n_wanted, n_reach)))
          << n_wanted << " from " << least;
    }
  }
}

TEST(TopTokens, OfEqualWeightsTheFirst) {
  TopTokens top;
  std::mt19937 rng(2);
  for (int n_values : {1, 2, 7}) {
    std::vector<float> weights(3000);
    for (float& w : weights) w = static_cast<float>(rng() % n_values);
    for (int64_t n_wanted : {1, 64, 700}) {
      EXPECT_EQ(Selected(top, weights, n_wanted), Sorted(weights, n_wanted));
    }
  }
}

TEST(TopTokens, WhereverTheLargestStand) {
  TopTokens top;
  for (size_t at : {0u, 15u, 16u, 255u, 256u, 1000u, 1023u, 1024u, 1029u}) {
    std::vector<float> weights(1030, 0.0f);
    weights[at] = 1e-30f;
    EXPECT_EQ(Selected(top, weights, 1), std::vector<int32_t>{static_cast<int32_t>(at)});
  }
}

// All of the largest in one group: the threshold is far below them.
TEST(TopTokens, CrowdedInOneGroup) {
  TopTokens top;
  std::vector<float> weights(4096, 0.5f);
  for (int64_t i = 0; i < 256; i += 16) weights[512 + 5 + i] = 1.0f + static_cast<float>(i);
  EXPECT_EQ(Selected(top, weights, 20), Sorted(weights, 20));
}

TEST(TopTokens, NoneWantedOrNoneThere) {
  TopTokens top;
  EXPECT_TRUE(top.Select({}, 5).empty());
  const float one = 1;
  EXPECT_TRUE(top.Select({&one, 1}, 0).empty());
}

TEST(TopTokens, WeightsThatAreNoNumbersStillGiveAsManyIndices) {
  TopTokens top;
  std::vector<float> weights(1000, 0.25f);
  for (size_t i = 0; i < weights.size(); i += 3) weights[i] = std::nanf("");
  weights[7] = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> chosen = Selected(top, weights, 64);
  ASSERT_EQ(chosen.size(), 64u);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
  EXPECT_GE(chosen.front(), 0);
  EXPECT_LT(chosen.back(), 1000);
}

}  // namespace
}  // namespace lowkey
