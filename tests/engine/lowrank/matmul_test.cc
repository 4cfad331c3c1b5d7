#include "engine/lowrank/matmul.h"

#include <cmath>
#include <random>
#include <string>

#include "engine/kernels/isa.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng()) * 0x1p-31f - 1.0f;
  return x;
}

class MatmulTest : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  std::vector<float> pack_;
};

TEST_P(MatmulTest, EqualsDoubleProductForSizesAroundEveryTileEdge) {
  const MatmulShape shapes[] = {{1, 1, 1},    {5, 17, 3},     {6, 16, 256},  {7, 15, 257},
                                {12, 32, 64}, {97, 513, 260}, {13, 33, 511}, {100, 31, 1}};
  for (const auto& [m, n, k] : shapes) {
    const std::vector<float> a = Random(m * k, 1), b = Random(k * n, 2);
    std::vector<float> c(m * n, NAN);
    Matmul({m, n, k}, {a.data(), k, 1}, {b.data(), n, 1}, {.kernels = GetParam()}, {c.data(), n},
           pack_);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0.0;
        for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(a[i * k + p]) * b[p * n + j];
        ASSERT_NEAR(c[i * n + j], sum, 1e-5 * std::sqrt(k) + 1e-6) << i << "," << j;
      }
    }
  }
}

TEST_P(MatmulTest, SwappedStridesMultiplyTheTranspose) {
  const int64_t m = 37, n = 41, k = 300;
  const std::vector<float> at = Random(k * m, 1), bt = Random(n * k, 2);
  std::vector<float> c(m * n);
  Matmul({m, n, k}, {at.data(), 1, m}, {bt.data(), 1, k}, {.kernels = GetParam()}, {c.data(), n},
         pack_);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(at[p * m + i]) * bt[j * k + p];
      ASSERT_NEAR(c[i * n + j], sum, 2e-4);
    }
  }
}

TEST_P(MatmulTest, AccumulatesWithAlphaAndLeavesTheGapBetweenRowsAlone) {
  const float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1};
  std::vector<float> c = {10, 20, 99, 30, 40, 99};
  Matmul({2, 2, 2}, {a, 2, 1}, {b, 2, 1},
         {.accumulate = true, .alpha = -2.0f, .kernels = GetParam()}, {c.data(), 3}, pack_);
  EXPECT_EQ(c, (std::vector<float>{8, 16, 99, 24, 32, 99}));
}

TEST_P(MatmulTest, EmptyInnerDimensionGivesZeroOrLeavesC) {
  std::vector<float> c = {1, 2, 3, 4};
  Matmul({2, 2, 0}, {nullptr, 0, 1}, {nullptr, 2, 1}, {.accumulate = true, .kernels = GetParam()},
         {c.data(), 2}, pack_);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4}));
  Matmul({2, 2, 0}, {nullptr, 0, 1}, {nullptr, 2, 1}, {.kernels = GetParam()}, {c.data(), 2},
         pack_);
  EXPECT_EQ(c, (std::vector<float>{0, 0, 0, 0}));
}

TEST_P(MatmulTest, LowerOnlyMirroredEqualsTheWholeSymmetricProduct) {
  const int64_t n = 531, k = 70;
  const std::vector<float> a = Random(n * k, 3);
  std::vector<float> whole(n * n), half(n * n, NAN);
  Matmul({n, n, k}, {a.data(), k, 1}, {a.data(), 1, k}, {.kernels = GetParam()}, {whole.data(), n},
         pack_);
  Matmul({n, n, k}, {a.data(), k, 1}, {a.data(), 1, k}, {.lower_only = true, .kernels = GetParam()},
         {half.data(), n}, pack_);
  MirrorLower(n, half.data());
  for (int64_t i = 0; i < n * n; ++i) ASSERT_EQ(half[i], whole[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Tables, MatmulTest, ::testing::ValuesIn(AvailableKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace lowkey
