#include "client/load/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace lowkey {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using ::testing::Le;

WorkloadOptions Options() {
  WorkloadOptions options;
  options.prompt_lengths = UniformLengths{4, 40};
  options.output_lengths = UniformLengths{1, 9};
  options.mix = {{"standard", {}, 3}, {"atp", {}, 1}};
  options.mix[1].attention.mechanism = "atp";
  options.vocab_size = 50;
  options.context_tokens = 100;
  return options;
}

const TokenList& Tokens(const PlannedRequest& planned) {
  return std::get<TokenList>(planned.request.input);
}

TEST(WorkloadTest, SameSeedIsTheSameLoadAndAnotherIsNot) {
  WorkloadOptions options = Options();
  const Workload one(options), same(options);
  options.seed = 2;
  const Workload other(options);
  int n_equal = 0;
  for (int i = 0; i < 50; ++i) {
    const PlannedRequest a = one.At(0, i), b = same.At(0, i), c = other.At(0, i);
    EXPECT_EQ(Tokens(a), Tokens(b));
    EXPECT_EQ(a.request.max_new_tokens, b.request.max_new_tokens);
    EXPECT_EQ(a.request.sampling.seed, b.request.sampling.seed);
    EXPECT_EQ(a.mix_index, b.mix_index);
    n_equal += Tokens(a) == Tokens(c);
  }
  EXPECT_EQ(n_equal, 0);
}

TEST(WorkloadTest, SweepPointsShareShapesAndNotPrompts) {
  const Workload workload(Options());
  for (int i = 0; i < 50; ++i) {
    const PlannedRequest a = workload.At(0, i), b = workload.At(1, i);
    EXPECT_EQ(a.n_prompt_tokens, b.n_prompt_tokens);
    EXPECT_EQ(a.request.max_new_tokens, b.request.max_new_tokens);
    EXPECT_EQ(a.mix_index, b.mix_index);
    EXPECT_NE(Tokens(a), Tokens(b));
  }
}

TEST(WorkloadTest, MechanismsHaveTheirShares) {
  const Workload workload(Options());
  int n_atp = 0;
  for (int i = 0; i < 2000; ++i) {
    const PlannedRequest planned = workload.At(0, i);
    const bool is_atp = planned.request.attention.mechanism.has_value();
    EXPECT_EQ(is_atp, planned.mix_index == 1);
    n_atp += is_atp;
  }
  EXPECT_NEAR(n_atp, 500, 80);
}

TEST(WorkloadTest, RandomPromptsHaveEveryTokenButTheSpecialOnes) {
  WorkloadOptions options = Options();
  options.special_tokens = {49, 2, 0, 2};
  const Workload workload(options);
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) {
    const PlannedRequest planned = workload.At(0, i);
    EXPECT_EQ(Tokens(planned).size(), static_cast<size_t>(planned.n_prompt_tokens));
    seen.insert(Tokens(planned).begin(), Tokens(planned).end());
  }
  EXPECT_EQ(seen.size(), 47u);
  for (const int32_t special : options.special_tokens) EXPECT_FALSE(seen.contains(special));
  EXPECT_EQ(*seen.rbegin(), 48);
}

TEST(WorkloadTest, PromptsFromTextRunOnFromItsEndToItsBeginning) {
  WorkloadOptions options = Options();
  options.text = {7, 8, 9};
  options.prompt_lengths = UniformLengths{6, 6};
  const Workload workload(options);
  std::set<int32_t> first;
  for (int i = 0; i < 40; ++i) {
    const TokenList tokens = Tokens(workload.At(0, i));
    first.insert(tokens[0]);
    for (size_t j = 1; j < tokens.size(); ++j) EXPECT_EQ(tokens[j], (tokens[j - 1] - 6) % 3 + 7);
  }
  EXPECT_THAT(first, ElementsAre(7, 8, 9));
}

TEST(WorkloadTest, WhatPassesTheContextIsCut) {
  WorkloadOptions options = Options();
  options.trace = {{0, 10, 5}, {1, 99, 2}, {2, kMaxLength, kMaxLength}};
  const Workload workload(options);
  EXPECT_FALSE(workload.At(0, 0).is_cut);
  EXPECT_EQ(workload.At(0, 3).n_prompt_tokens, 10) << "a trace goes on from its beginning";
  EXPECT_EQ(workload.At(0, 1).n_prompt_tokens, 98);
  EXPECT_EQ(workload.At(0, 1).request.max_new_tokens, 2);
  EXPECT_EQ(workload.At(0, 2).n_prompt_tokens, 1);
  EXPECT_EQ(workload.At(0, 2).request.max_new_tokens, 99);
  EXPECT_TRUE(workload.At(0, 2).is_cut);
}

double SquaredVariation(const std::vector<double>& arrivals) {
  double mean = 0, square = 0, last = 0;
  for (const double at : arrivals) {
    mean += at - last;
    square += (at - last) * (at - last);
    last = at;
  }
  mean /= static_cast<double>(arrivals.size());
  return square / static_cast<double>(arrivals.size()) / (mean * mean) - 1;
}

TEST(ArrivalsTest, HaveTheirRateAndTheirBurstiness) {
  for (const double burstiness : {0.25, 1.0, 10.0}) {
    const std::vector<double> arrivals = DrawArrivals({50, burstiness, 3}, 20000);
    ASSERT_EQ(arrivals.size(), 20000u);
    EXPECT_NEAR(arrivals.back(), 400, 25) << burstiness;
    EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
    EXPECT_NEAR(SquaredVariation(arrivals) * burstiness, 1, 0.1);
  }
}

TEST(ArrivalsTest, SameSeedIsTheSameSchedule) {
  EXPECT_EQ(DrawArrivals({5, 1, 9}, 20), DrawArrivals({5, 1, 9}, 20));
  EXPECT_NE(DrawArrivals({5, 1, 9}, 20), DrawArrivals({5, 1, 8}, 20));
}

TEST(ArrivalsTest, EndAtTheLimit) {
  const std::vector<double> arrivals = DrawArrivals({10, 1, 9, 2.0}, 1000);
  EXPECT_NEAR(static_cast<double>(arrivals.size()), 20, 15);
  EXPECT_THAT(arrivals, Each(Le(2.0)));
  EXPECT_THAT(arrivals, IsSubsetOf(DrawArrivals({10, 1, 9}, 1000)));
}

}  // namespace
}  // namespace lowkey
