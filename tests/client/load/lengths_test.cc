#include "client/load/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lowkey {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> Draw(const std::string& text, int n) {
  const auto lengths = ParseLengths(text);
  EXPECT_TRUE(lengths.ok()) << lengths.status();
  std::mt19937_64 random(7);
  std::vector<int32_t> drawn;
  for (int i = 0; i < n; ++i) drawn.push_back(DrawLength(*lengths, random));
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

TEST(LengthsTest, ANumberIsEveryLength) {
  const std::vector<int32_t> drawn = Draw("128", 20);
  EXPECT_EQ(drawn.front(), 128);
  EXPECT_EQ(drawn.back(), 128);
  EXPECT_EQ(MinLength(*ParseLengths("128")), 128);
}

TEST(LengthsTest, UniformTakesBothEndsAndNothingBeyond) {
  const std::vector<int32_t> drawn = Draw("uniform:3-6", 400);
  EXPECT_EQ(drawn.front(), 3);
  EXPECT_EQ(drawn.back(), 6);
  EXPECT_EQ(MinLength(*ParseLengths("uniform:3-6")), 3);
}

TEST(LengthsTest, LognormalHasItsMedianAndItsSpread) {
  const std::vector<int32_t> drawn = Draw("lognormal:256,0.5", 20000);
  EXPECT_NEAR(drawn[10000], 256, 6);
  // One sigma up is the 84.1st percentile.
  EXPECT_NEAR(drawn[16827], 256 * std::exp(0.5), 12);
  EXPECT_EQ(MinLength(*ParseLengths("lognormal:256,0.5")), 1);
}

TEST(LengthsTest, LognormalStaysInRangeHoweverWide) {
  const std::vector<int32_t> drawn = Draw("lognormal:1000,10", 2000);
  EXPECT_EQ(drawn.front(), 1);
  EXPECT_EQ(drawn.back(), kMaxLength);
}

TEST(LengthsTest, RefusesWhatIsNoDistribution) {
  for (const char* text : {"",
                           "0",
                           "-4",
                           "1048577",
                           "99999999999",
                           "x",
                           "12x",
                           "uniform:",
                           "uniform:5",
                           "uniform:6-5",
                           "uniform:0-5",
                           "uniform:1-9999999",
                           "lognormal:",
                           "lognormal:5",
                           "lognormal:0,1",
                           "lognormal:5,-1",
                           "lognormal:5,11",
                           "lognormal:nan,1",
                           "lognormal:5,nan",
                           "normal:5,1"}) {
    const absl::Status status = ParseLengths(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("lognormal:MEDIAN,SIGMA")) << text;
  }
}

}  // namespace
}  // namespace lowkey
