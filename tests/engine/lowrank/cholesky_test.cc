#include "engine/lowrank/cholesky.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

// Returns B'B / n + I / 10 of random B.
std::vector<float> PositiveDefinite(int64_t n) {
  std::mt19937 rng(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal;
  std::vector<float> b(n * n), a(n * n);
  for (float& x : b) x = normal(rng);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = i == j ? 0.1 * static_cast<double>(n) : 0;
      for (int64_t k = 0; k < n; ++k) sum += double{b[k * n + i]} * b[k * n + j];
      a[i * n + j] = static_cast<float>(sum / static_cast<double>(n));
    }
  }
  return a;
}

TEST(UpperCholesky, ItsSquareIsTheMatrix) {
  ThreadPool pool(2);
  for (const int64_t n : {1, 2, 63, 64, 65, 200, 400}) {
    const std::vector<float> a = PositiveDefinite(n);
    std::vector<float> r = a;
    ASSERT_TRUE(UpperCholesky(n, pool, r.data())) << n;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_GT(r[i * n + i], 0);
      for (int64_t j = i; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k <= i; ++k) sum += double{r[k * n + i]} * r[k * n + j];
        ASSERT_NEAR(sum, a[i * n + j], 1e-5) << n << ": " << i << ", " << j;
      }
    }
  }
}

TEST(UpperCholesky, DoesNotDependOnThreads) {
  const int64_t n = 300;
  std::vector<float> one = PositiveDefinite(n), three = one;
  ThreadPool pool_of_one(1), pool_of_three(3);
  ASSERT_TRUE(UpperCholesky(n, pool_of_one, one.data()));
  ASSERT_TRUE(UpperCholesky(n, pool_of_three, three.data()));
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_TRUE(std::equal(&one[i * n + i], one.data() + (i + 1) * n, &three[i * n + i])) << i;
  }
}

TEST(UpperCholesky, RefusesWhatIsNotPositiveDefinite) {
  ThreadPool pool(1);
  for (const float wrong : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    for (const int64_t place : {0, 70, 99}) {
      std::vector<float> a = PositiveDefinite(100);
      a[place * 100 + place] = wrong;
      EXPECT_FALSE(UpperCholesky(100, pool, a.data())) << wrong << " at " << place;
    }
  }
}

}  // namespace
}  // namespace lowkey
