#include "engine/lowrank/codebook.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

double At(Density density, double x) {
  if (density == Density::kGaussian) return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  return std::exp(-std::sqrt(2.0) * std::abs(x)) / std::sqrt(2.0);
}

// The integral of a function over [a, b] under the density of variance 1, numerically.
template <typename Function>
double Integral(Density density, double a, double b, const Function& function) {
  constexpr int kSteps = 20000;
  const double low = std::max(a, -30.0), high = std::min(b, 30.0), step = (high - low) / kSteps;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = low + (i + 0.5) * step;
    sum += function(x) * At(density, x) * step;
  }
  return sum;
}

double Centroid(Density density, double a, double b) {
  return Integral(density, a, b, [](double x) { return x; }) /
         Integral(density, a, b, [](double) { return 1.0; });
}

class CodebookTest : public testing::TestWithParam<std::tuple<Density, int>> {};

TEST_P(CodebookTest, LevelsAreCentroidsAndThresholdsLieMidway) {
  const auto [density, bits] = GetParam();
  const Codebook book = CodebookOf(density, bits);
  ASSERT_EQ(book.levels.size(), size_t{1} << bits);
  ASSERT_EQ(book.thresholds.size(), book.levels.size() - 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < book.levels.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(book.levels[i], book.levels[i - 1]);
      EXPECT_NEAR(book.thresholds[i - 1], (book.levels[i] + book.levels[i - 1]) / 2, 1e-6);
    }
    const double a = i == 0 ? -kInfinity : book.thresholds[i - 1];
    const double b = i + 1 == book.levels.size() ? kInfinity : book.thresholds[i];
    EXPECT_NEAR(book.levels[i], Centroid(density, a, b), 1e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, CodebookTest,
                         testing::Combine(testing::Values(Density::kGaussian, Density::kLaplacian),
                                          testing::Range(1, kMaxCodeBits + 1)));

TEST(Codebook, OneAndTwoBitsAreTheKnownQuantizers) {
  EXPECT_NEAR(CodebookOf(Density::kGaussian, 1).levels[1], 0.7979, 1e-4);
  EXPECT_NEAR(CodebookOf(Density::kLaplacian, 1).levels[1], 0.7071, 1e-4);
  // Max, 1960.
  EXPECT_NEAR(CodebookOf(Density::kGaussian, 2).levels[2], 0.4528, 1e-4);
  EXPECT_NEAR(CodebookOf(Density::kGaussian, 2).levels[3], 1.5104, 1e-4);
  // Paez and Glisson, 1972.
  EXPECT_NEAR(CodebookOf(Density::kLaplacian, 2).levels[2], 0.4198, 1e-3);
  EXPECT_NEAR(CodebookOf(Density::kLaplacian, 2).levels[3], 1.8340, 1e-3);
}

TEST(CellCodebook, LevelsAreCentroidsOfPartsOfTheCell) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int bits : {1, 2, 4}) {
    const Codebook whole = CodebookOf(Density::kGaussian, bits);
    const int n = 1 << bits;
    for (int cell = 0; cell < n; cell += bits == 4 ? 3 : 1) {
      const double begin = cell == 0 ? -kInfinity : whole.thresholds[cell - 1];
      const double end = cell + 1 == n ? kInfinity : whole.thresholds[cell];
      for (const int part_bits : {1, 3, 4}) {
        const Codebook book = GaussianCellCodebook(bits, cell, part_bits);
        ASSERT_EQ(book.levels.size(), size_t{1} << part_bits);
        ASSERT_EQ(book.thresholds.size(), book.levels.size() - 1);
        for (size_t i = 0; i < book.levels.size(); ++i) {
          const double a = i == 0 ? begin : book.thresholds[i - 1];
          const double b = i + 1 == book.levels.size() ? end : book.thresholds[i];
          EXPECT_LT(a, book.levels[i]);
          EXPECT_LT(book.levels[i], b);
          if (i > 0) {
            EXPECT_NEAR(book.thresholds[i - 1], (book.levels[i] + book.levels[i - 1]) / 2, 1e-5);
          }
          EXPECT_NEAR(book.levels[i], Centroid(Density::kGaussian, a, b), 1e-3)
              << bits << ", " << cell << ", " << part_bits << ", " << i;
        }
      }
    }
  }
}

TEST(GaussianDistortion, IsTheErrorOfTheCodebook) {
  EXPECT_EQ(GaussianDistortion(0), 1);
  for (int bits = 1; bits <= kMaxCodeBits; ++bits) {
    const Codebook book = CodebookOf(Density::kGaussian, bits);
    double error = 0;
    for (size_t i = 0; i < book.levels.size(); ++i) {
      const double level = book.levels[i];
      error += Integral(Density::kGaussian, i == 0 ? -12.0 : book.thresholds[i - 1],
                        i + 1 == book.levels.size() ? 12.0 : book.thresholds[i],
                        [level](double x) { return (x - level) * (x - level); });
    }
    EXPECT_NEAR(GaussianDistortion(bits) / error, 1, 1e-4) << bits;
  }
}

}  // namespace
}  // namespace lowkey
