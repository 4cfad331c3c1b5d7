#include "engine/lowrank/laplacian.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

// The integrals of x^power over [a, b] under the Laplacian of variance 1, numerically.
double Integral(double a, double b, int power) {
  constexpr int kSteps = 20000;
  const double low = std::max(a, -30.0), high = std::min(b, 30.0), step = (high - low) / kSteps;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = low + (i + 0.5) * step;
    sum += std::pow(x, power) * std::exp(-std::sqrt(2.0) * std::abs(x)) / std::sqrt(2.0) * step;
  }
  return sum;
}

class CodebookTest : public testing::TestWithParam<int> {};

TEST_P(CodebookTest, LevelsAreCentroidsAndThresholdsLieMidway) {
  const Codebook book = LaplacianCodebook(GetParam());
  ASSERT_EQ(book.levels.size(), size_t{1} << GetParam());
  ASSERT_EQ(book.thresholds.size(), book.levels.size() - 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < book.levels.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(book.levels[i], book.levels[i - 1]);
      EXPECT_NEAR(book.thresholds[i - 1], (book.levels[i] + book.levels[i - 1]) / 2, 1e-6);
    }
    if (GetParam() > 4) continue;  // tested by the rule above; integrals are slow
    const double a = i == 0 ? -kInfinity : book.thresholds[i - 1];
    const double b = i + 1 == book.levels.size() ? kInfinity : book.thresholds[i];
    EXPECT_NEAR(book.levels[i], Integral(a, b, 1) / Integral(a, b, 0), 2e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, CodebookTest, testing::Range(1, kMaxCodeBits + 1));

TEST(Codebook, OneAndTwoBitsAreTheKnownQuantizers) {
  EXPECT_NEAR(LaplacianCodebook(1).levels[1], 0.7071, 1e-4);
  // Paez and Glisson, 1972.
  EXPECT_NEAR(LaplacianCodebook(2).levels[2], 0.4198, 1e-3);
  EXPECT_NEAR(LaplacianCodebook(2).levels[3], 1.8340, 1e-3);
}

TEST(CellCodebook, LevelsAreCentroidsOfPartsOfTheCell) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int bits : {1, 2, 4}) {
    const Codebook whole = LaplacianCodebook(bits);
    const int n = 1 << bits;
    for (int cell = 0; cell < n; cell += bits == 4 ? 3 : 1) {
      const double begin = cell == 0 ? -kInfinity : whole.thresholds[cell - 1];
      const double end = cell + 1 == n ? kInfinity : whole.thresholds[cell];
      for (const int part_bits : {1, 3, 4}) {
        const Codebook book = LaplacianCellCodebook(bits, cell, part_bits);
        ASSERT_EQ(book.levels.size(), size_t{1} << part_bits);
        ASSERT_EQ(book.thresholds.size(), book.levels.size() - 1);
        for (size_t i = 0; i < book.levels.size(); ++i) {
          const double a = i == 0 ? begin : book.thresholds[i - 1];
          const double b = i + 1 == book.levels.size() ? end : book.thresholds[i];
          EXPECT_LT(a, book.levels[i]);
          EXPECT_LT(book.levels[i], b);
          if (i > 0) {
            EXPECT_NEAR(book.thresholds[i - 1], (book.levels[i] + book.levels[i - 1]) / 2, 1e-3);
          }
          EXPECT_NEAR(book.levels[i], Integral(a, b, 1) / Integral(a, b, 0), 5e-3)
              << bits << ", " << cell << ", " << part_bits << ", " << i;
        }
      }
    }
  }
}

TEST(GaussianDistortion, FallsByLessWithEveryBit) {
  EXPECT_EQ(GaussianDistortion(0), 1);
  for (int b = 1; b < kMaxCodeBits; ++b) {
    EXPECT_GT(GaussianDistortion(b - 1) - GaussianDistortion(b),
              GaussianDistortion(b) - GaussianDistortion(b + 1));
  }
}

}  // namespace
}  // namespace lowkey
