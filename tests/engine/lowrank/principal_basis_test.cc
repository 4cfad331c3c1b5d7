#include "engine/lowrank/principal_basis.h"

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr HeadGroup kGroup{2, 8, 8};

std::vector<float> Rows(int64_t dim, int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows(n * dim);
  for (int64_t i = 0; i < n; ++i) {
    const float shared = normal(rng);
    for (int64_t j = 0; j < dim; ++j) {
      rows[i * dim + j] = 30 + 0.1f * static_cast<float>(j) * normal(rng) + shared;
    }
  }
  return rows;
}

// The moments in double, as they are defined.
struct Plain {
  std::vector<double> mean, covariance;
  Plain(const std::vector<float>& rows, int64_t dim) : mean(dim), covariance(dim * dim) {
    const int64_t n = static_cast<int64_t>(rows.size()) / dim;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < dim; ++j) mean[j] += rows[i * dim + j] / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < dim; ++j) {
        for (int64_t k = 0; k < dim; ++k) {
          covariance[j * dim + k] += (rows[i * dim + j] - mean[j]) * (rows[i * dim + k] - mean[k]) /
                                     static_cast<double>(n);
        }
      }
    }
  }
};

TEST(Moments, AreThoseOfDoublesWhateverTheThreadsAndTheRowsAtOnce) {
  constexpr int64_t kDim = 130;
  const std::vector<float> rows = Rows(kDim, 700, 1);
  const Plain plain(rows, kDim);
  ThreadPool one(1), two(2);
  MomentsScratch scratch;
  Moments whole(kDim), parts(kDim), spread(kDim);
  whole.Add(rows.data(), 700, one, scratch);
  spread.Add(rows.data(), 700, two, scratch);
  for (int64_t at = 0; at < 700; at += 100) parts.Add(rows.data() + at * kDim, 100, two, scratch);
  EXPECT_EQ(whole.Covariance(), spread.Covariance());
  const std::vector<double> covariance = whole.Covariance(), other = parts.Covariance();
  const std::vector<double> second = whole.SecondMoment(), mean = whole.Mean();
  for (int64_t i = 0; i < kDim * kDim; ++i) {
    ASSERT_NEAR(covariance[i], plain.covariance[i], 1e-3) << i;
    ASSERT_NEAR(other[i], plain.covariance[i], 1e-3) << i;
    ASSERT_NEAR(second[i], plain.covariance[i] + plain.mean[i / kDim] * plain.mean[i % kDim], 0.05);
  }
  for (int64_t j = 0; j < kDim; ++j) ASSERT_NEAR(mean[j], plain.mean[j], 1e-4);
  EXPECT_EQ(parts.n_rows(), 700);
}

class BasisTest : public testing::Test {
 protected:
  BasisTest() : x_(kGroup.dim()), queries_(kGroup.n_heads, Moments(kGroup.key_dim)) {
    x_.Add(Rows(kGroup.dim(), 500, 2).data(), 500, pool_, scratch_);
    queries_[0].Add(Rows(kGroup.key_dim, 100, 3).data(), 100, pool_, scratch_);
    queries_[1].Add(Rows(kGroup.key_dim, 100, 4).data(), 100, pool_, scratch_);
  }

  ThreadPool pool_{1};
  MomentsScratch scratch_;
  Moments x_;
  std::vector<Moments> queries_;
};

TEST_F(BasisTest, DecodingUndoesEncoding) {
  const PrincipalCode code = *FindPrincipalCode(kGroup, x_, queries_);
  const int64_t n = code.dim;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t e = 0; e < n; ++e) {
        const double term = static_cast<double>(ToFloat(BFloat16{code.decode[i * n + e]})) *
                            ToFloat(BFloat16{code.encode[e * n + j]});
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(sum, i == j ? 1 : 0, 0.01 * (1 + size)) << i << " " << j;
    }
  }
}

// The definition, checked without an eigensolver: components are uncorrelated with the variances
// that the code states, and |y|^2 is the weighted squared error of the numbers.
TEST_F(BasisTest, ComponentsAreUncorrelatedAndWeighErrorsAsDefined) {
  const PrincipalCode code = *FindPrincipalCode(kGroup, x_, queries_);
  const int64_t n = code.dim;
  const std::vector<double> covariance = x_.Covariance();
  std::vector<double> f(n * n);
  for (int64_t i = 0; i < n * n; ++i) f[i] = ToFloat(BFloat16{code.encode[i]});
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < n; ++b) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) sum += f[a * n + i] * covariance[i * n + j] * f[b * n + j];
      }
      EXPECT_NEAR(sum, a == b ? code.variances[a] : 0, 0.01 * code.variances[0]) << a << " " << b;
    }
    if (a > 0) {
      EXPECT_LE(code.variances[a], code.variances[a - 1]);
    }
  }
  // F'F = B'B: S of the head for keys, 1 / E|v - mean|^2 for values.
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, expected = 0;
      for (int64_t e = 0; e < n; ++e) sum += f[e * n + i] * f[e * n + j];
      const int64_t head = i / kGroup.key_dim;
      if (head == j / kGroup.key_dim && head < kGroup.n_heads) {
        expected = queries_[head].SecondMoment()[i % 8 * 8 + j % 8] / 8;
      } else if (i == j) {
        double t = 0;
        for (int64_t v = i / 8 * 8; v < i / 8 * 8 + 8; ++v) t += covariance[v * (n + 1)];
        expected = 1 / t;
      }
      EXPECT_NEAR(sum, expected, 0.01 * queries_[0].SecondMoment()[0] / 8) << i << " " << j;
    }
  }
}

TEST_F(BasisTest, RefusesMomentsThatAreNotFiniteOrTooFew) {
  const Moments none(kGroup.dim());
  EXPECT_EQ(FindPrincipalCode(kGroup, none, queries_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::vector<float> row(kGroup.dim(), std::numeric_limits<float>::infinity());
  x_.Add(row.data(), 1, pool_, scratch_);
  EXPECT_EQ(FindPrincipalCode(kGroup, x_, queries_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Llama 2 7B has 32 KV heads of 128: its layers have 202 million weights.
TEST(HeadsPerGroup, KeepsBasesBelowFiveHundredthsOfTheWeights) {
  const int64_t heads = HeadsPerGroup(32, 128, 128);
  EXPECT_EQ(heads, 2);
  const int64_t dim = heads * 256, n_groups = 32 / heads;
  EXPECT_LT(2.0 * static_cast<double>(dim * dim * n_groups), 0.05 * 202e6);
  EXPECT_EQ(HeadsPerGroup(3, 64, 64), 3);
  EXPECT_EQ(HeadsPerGroup(8, 128, 128), 2);
  EXPECT_EQ(HeadsPerGroup(7, 128, 128), 1);
  EXPECT_EQ(HeadsPerGroup(2, 512, 512), 1);
}

}  // namespace
}  // namespace lowkey
