#include "engine/lowrank/orthonormalize.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

double Dot(int64_t n, const float* x, const float* y) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

// Every row is a unit vector or zero, and rows are orthogonal. Returns how many are not zero.
int64_t ExpectOrthonormalOrZero(const std::vector<float>& y, int64_t n_rows, int64_t n_cols) {
  int64_t n_found = 0;
  for (int64_t i = 0; i < n_rows; ++i) {
    const double length = Dot(n_cols, &y[i * n_cols], &y[i * n_cols]);
    if (length != 0.0) {
      EXPECT_NEAR(length, 1.0, 1e-5) << i;
      ++n_found;
    }
    for (int64_t j = 0; j < i; ++j) {
      EXPECT_NEAR(Dot(n_cols, &y[i * n_cols], &y[j * n_cols]), 0.0, 1e-5) << i << "," << j;
    }
  }
  return n_found;
}

TEST(OrthonormalizeRows, RandomRowsOverSeveralPanels) {
  std::vector<float> y = Random(100 * 300, 1);
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(100, 300, y.data(), scratch);
  EXPECT_EQ(ExpectOrthonormalOrZero(y, 100, 300), 100);
}

TEST(OrthonormalizeRows, NearlyParallelRowsStayOrthogonal) {
  const int64_t n_rows = 70, n_cols = 200;
  const std::vector<float> base = Random(n_cols, 1), noise = Random(n_rows * n_cols, 2);
  std::vector<float> y(n_rows * n_cols);
  for (int64_t i = 0; i < n_rows * n_cols; ++i) y[i] = base[i % n_cols] + 1e-4f * noise[i];
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(n_rows, n_cols, y.data(), scratch);
  EXPECT_EQ(ExpectOrthonormalOrZero(y, n_rows, n_cols), n_rows);
}

TEST(OrthonormalizeRows, RepeatedRowsBecomeZero) {
  const int64_t n_cols = 64;
  const std::vector<float> rows = Random(5 * n_cols, 3);
  std::vector<float> y;
  for (int repeat = 0; repeat < 9; ++repeat) y.insert(y.end(), rows.begin(), rows.end());
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(45, n_cols, y.data(), scratch);
  EXPECT_EQ(ExpectOrthonormalOrZero(y, 45, n_cols), 5);
  for (int64_t i = 5 * n_cols; i < 45 * n_cols; ++i) ASSERT_EQ(y[i], 0.0f);
}

TEST(OrthonormalizeRows, MoreRowsThanColumnsLeavesAsManyAsColumns) {
  std::vector<float> y = Random(80 * 40, 4);
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(80, 40, y.data(), scratch);
  EXPECT_EQ(ExpectOrthonormalOrZero(y, 80, 40), 40);
}

TEST(OrthonormalizeRows, LeadingRowsKeepTheirSpan) {
  const int64_t n_rows = 40, n_cols = 90;
  const std::vector<float> before = Random(n_rows * n_cols, 5);
  std::vector<float> y = before;
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(n_rows, n_cols, y.data(), scratch);
  for (int64_t k : {0, 1, 31, 32, 39}) {  // row k lies in the span of the first k + 1 results
    const float* row = &before[k * n_cols];
    double kept = 0.0;
    for (int64_t i = 0; i <= k; ++i) kept += std::pow(Dot(n_cols, row, &y[i * n_cols]), 2);
    EXPECT_NEAR(kept / Dot(n_cols, row, row), 1.0, 1e-5) << k;
  }
}

TEST(OrthonormalizeRows, ZeroRowsStayZero) {
  std::vector<float> y(6 * 10, 0.0f);
  y[23] = 2.0f;
  OrthonormalizeScratch scratch;
  OrthonormalizeRows(6, 10, y.data(), scratch);
  EXPECT_EQ(ExpectOrthonormalOrZero(y, 6, 10), 1);
  EXPECT_EQ(y[23], 1.0f);
}

}  // namespace
}  // namespace lowkey
