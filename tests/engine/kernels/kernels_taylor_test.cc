#include <cmath>
#include <limits>

#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/kernels_testing.h"
#include "tests/engine/kernels/ref/ref.h"

namespace lowkey {
namespace {

INSTANTIATE_TEST_SUITE_P(Tables, KernelTest, testing::ValuesIn(AllKernelCases()), KernelCaseName);

TEST_P(KernelTest, TaylorWeightsMatchTheOracleWhateverIsHidden) {
  for (float scale : {0.01f, 1.0f, 100.0f}) {
    for (int64_t n_visible : {1, 2, 7, 8, 15, 16, 17, 40, 63, 64}) {
      const std::vector<float> scores = Random(64, static_cast<uint32_t>(n_visible), scale);
      const std::vector<double> want = ref::TaylorWeights(scores, n_visible);
      std::vector<float> got = scores;
      // Numbers behind the visible scores are never read into the sum.
      if (n_visible < 48) got[63] = std::numeric_limits<float>::quiet_NaN();
      const float sum = table().taylor_weights(got.data(), n_visible, 64);
      double total = 0;
      for (int64_t i = 0; i < 64; ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-6 * want[i] + 1e-7) << i << " of " << n_visible;
        total += want[i];
      }
      EXPECT_NEAR(sum, total, 2e-6 * total);
    }
  }
}

// The smallest weight is 1/2, at s = -1; rounding may take its last bit.
TEST_P(KernelTest, TaylorWeightsAreAtLeastAHalf) {
  std::vector<float> scores(4096);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -1.0f + 1e-7f * static_cast<float>(i);
  table().taylor_weights(scores.data(), 4096, 4096);
  for (float w : scores) ASSERT_GE(w, 0.5f - 1e-7f);
}

TEST_P(KernelTest, TaylorWeightsSumsDoNotDependOnWhatIsHidden) {
  const std::vector<float> scores = Random(64, 3);
  for (int64_t n_visible : {1, 9, 16, 33, 63}) {
    std::vector<float> a = scores, b = scores;
    std::fill(b.begin() + n_visible, b.end(), 1e30f);
    EXPECT_EQ(table().taylor_weights(a.data(), n_visible, 64),
              table().taylor_weights(b.data(), n_visible, 64));
    EXPECT_EQ(a, b);
  }
}

TEST_P(KernelTest, TurnedProductsMatchTheOracle) {
  for (int64_t n : {1, 2, 7, 8, 15, 20, 33, 64}) {
    for (int64_t n_rows : {1, 3}) {
      for (int64_t first : {int64_t{0}, n / 2}) {
        std::vector<float> x(n_rows * 2 * n);
        const std::vector<float> once = Random(n_rows * n, static_cast<uint32_t>(n));
        for (int64_t i = 0; i < n_rows * 2 * n; ++i) x[i] = once[i / (2 * n) * n + i % n];
        for (int64_t n_out : {int64_t{0}, n / 2, n, n + n / 2}) {
          if (first * n + n_out > n * n) continue;
          std::vector<float> out(n_rows * (n_out + 5), -1.0f);
          const TurnedProductsArgs args{x.data(), 2 * n, out.data(), n_out + 5, n_rows,
                                        n,        first, 1,          n_out};
          const std::vector<double> want = ref::TurnedProducts(args);
          table().turned_products(args);
          for (int64_t i = 0; i < n_rows; ++i) {
            const float* row = out.data() + i * (n_out + 5);
            for (int64_t f = 0; f < n_out; ++f) {
              ASSERT_EQ(row[f], static_cast<float>(want[i * n_out + f])) << n << ", " << f;
            }
            for (int64_t f = n_out; f < n_out + 5; ++f) ASSERT_EQ(row[f], -1.0f) << n << ", " << f;
          }
        }
      }
    }
  }
}

// Multiplies rows of a transposed matrix with each other: a turn is a row, not an element.
TEST_P(KernelTest, TurnedProductsStepOverRows) {
  const int64_t d = 6, width = 16;
  const std::vector<float> once = Random(d * width, 1);
  std::vector<float> x = once, out(2 * d * width);
  x.insert(x.end(), once.begin(), once.end());
  table().turned_products({x.data(), 0, out.data(), 0, 1, d * width, 2, width, 2 * d * width});
  for (int64_t turn : {2, 3}) {
    for (int64_t j = 0; j < d; ++j) {
      for (int64_t t = 0; t < width; ++t) {
        EXPECT_EQ(out[((turn - 2) * d + j) * width + t],
                  once[j * width + t] * once[(j + turn) % d * width + t]);
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
