#include "engine/model/rope.h"

#include <cmath>
#include <utility>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

ModelConfig Config(int32_t head_dim, double theta, const RopeScaling& scaling = RopeDefault{}) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  config.rope_scaling = scaling;
  return config;
}

TEST(RopeInverseFrequencies, FallFromOneByEqualFactors) {
  const std::vector<double> f = RopeInverseFrequencies(Config(8, 10000.0));
  ASSERT_EQ(f.size(), 4u);
  const double expected[] = {1.0, 0.1, 0.01, 0.001};
  for (int j = 0; j < 4; ++j) EXPECT_NEAR(f[j] / expected[j], 1.0, 1e-12);
}

TEST(RopeInverseFrequencies, OnePairTurnsByOne) {
  EXPECT_EQ(RopeInverseFrequencies(Config(2, 12345.0)), std::vector<double>{1.0});
}

TEST(RopeInverseFrequencies, NarrowScoresHaveFewerPairs) {
  ModelConfig config = Config(64, 10000.0, RopeLinear{4.0});
  config.score_dim = 8;
  EXPECT_EQ(RopeInverseFrequencies(config),
            RopeInverseFrequencies(Config(8, 10000.0, RopeLinear{4.0})));
}

TEST(RopeInverseFrequencies, LinearScalingDividesEveryPair) {
  const std::vector<double> plain = RopeInverseFrequencies(Config(64, 10000.0));
  const std::vector<double> f = RopeInverseFrequencies(Config(64, 10000.0, RopeLinear{4.0}));
  for (size_t j = 0; j < f.size(); ++j) EXPECT_DOUBLE_EQ(f[j], plain[j] / 4.0);
}

// Llama 3.1's settings; values that transformers computes in fp32.
TEST(RopeInverseFrequencies, Llama3ScalingMatchesTransformers) {
  const std::vector<double> f =
      RopeInverseFrequencies(Config(128, 500000.0, RopeLlama3{8.0, 1.0, 4.0, 8192}));
  ASSERT_EQ(f.size(), 64u);
  const std::pair<int, double> expected[] = {{0, 1.0},
                                             {1, 0.8146172165870667},
                                             {20, 0.016560440883040428},
                                             {28, 0.0032114461064338684},
                                             {29, 0.0021665706299245358},
                                             {30, 0.0013718936825171113},
                                             {31, 0.0008567514596506953},
                                             {32, 0.0005248460220173001},
                                             {33, 0.0003126936499029398},
                                             {34, 0.0001785077911335975},
                                             {35, 9.556212171446532e-05},
                                             {36, 7.784655463183299e-05},
                                             {40, 3.428102354519069e-05},
                                             {63, 3.068925877869333e-07}};
  for (const auto& [j, value] : expected) EXPECT_NEAR(f[j] / value, 1.0, 1e-5) << j;
}

TEST(RopeInverseFrequencies, Llama3KeepsShortWavesAndDividesLongOnes) {
  const RopeLlama3 scaling{8.0, 1.0, 4.0, 8192};
  const std::vector<double> plain = RopeInverseFrequencies(Config(128, 500000.0));
  const std::vector<double> f = RopeInverseFrequencies(Config(128, 500000.0, scaling));
  for (size_t j = 0; j < f.size(); ++j) {
    const double turns = 8192 * plain[j] / (2 * M_PI);  // within the original context
    if (turns > 4.0) {
      EXPECT_EQ(f[j], plain[j]) << j;
    } else if (turns < 1.0) {
      EXPECT_DOUBLE_EQ(f[j], plain[j] / 8.0) << j;
    } else {
      EXPECT_LT(f[j], plain[j]) << j;
      EXPECT_GT(f[j], plain[j] / 8.0) << j;
    }
    if (j > 0) {
      EXPECT_LT(f[j], f[j - 1]) << j;
    }
  }
}

TEST(RopeInverseFrequencies, GivenFactorsDivideEachPairsFrequency) {
  const std::vector<double> plain = RopeInverseFrequencies(Config(8, 10000.0));
  const std::vector<double> f =
      RopeInverseFrequencies(Config(8, 10000.0, RopeFactors{{1.0f, 2.0f, 4.0f, 0.5f}}));
  EXPECT_EQ(f, (std::vector<double>{plain[0], plain[1] / 2, plain[2] / 4, plain[3] * 2}));
}

}  // namespace
}  // namespace lowkey
