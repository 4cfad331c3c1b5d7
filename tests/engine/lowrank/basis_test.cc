#include "engine/lowrank/basis.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/engine/lowrank/lowrank_testing.h"

namespace lowkey {
namespace {

Matrix Random(int64_t n_rows, int64_t n_cols, uint32_t seed) {
  Matrix m{n_rows, n_cols, std::vector<float>(n_rows * n_cols)};
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (float& x : m.data) x = normal(rng);
  return m;
}

// A [n_rows, s] diag(weight(i)) B [s, n_cols], s the smaller side.
Matrix Decaying(int64_t n_rows, int64_t n_cols, const std::function<double(int64_t)>& weight) {
  const int64_t s = std::min(n_rows, n_cols);
  const Matrix a = Random(n_rows, s, 1), b = Random(s, n_cols, 2);
  Matrix m{n_rows, n_cols, std::vector<float>(n_rows * n_cols)};
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t k = 0; k < s; ++k) {
      const float x = static_cast<float>(a.data[i * s + k] * weight(k));
      for (int64_t j = 0; j < n_cols; ++j) m.data[i * n_cols + j] += x * b.data[k * n_cols + j];
    }
  }
  return m;
}

std::vector<float> Basis(const Matrix& m, int64_t rank) {
  BasisWorkspace workspace;
  std::vector<float> u(m.n_rows * rank, NAN);
  PrincipalBasis(m.view(), rank, workspace, u.data());
  return u;
}

void ExpectNearlyOptimal(const Matrix& m, int64_t rank) {
  SCOPED_TRACE(testing::Message() << m.n_rows << " x " << m.n_cols << ", rank " << rank);
  const std::vector<float> u = Basis(m, rank);
  ExpectOrthonormalOrZero(u, m.n_rows, rank);
  const double best = BestEnergy(m, rank);
  const double kept = KeptEnergy(m, u, rank);
  EXPECT_GE(kept, 0.99 * best);
  EXPECT_LE(kept, best * (1 + 1e-5));
}

TEST(PrincipalBasis, KeepsTheTruncatedSvdsEnergyOnDecayingSpectra) {
  const std::function<double(int64_t)> weights[] = {
      [](int64_t i) { return std::pow(i + 1.0, -0.5); },
      [](int64_t i) { return std::pow(i + 1.0, -1.0); },
      [](int64_t i) { return std::pow(i + 1.0, -2.0); },
      [](int64_t i) { return std::exp(-0.1 * i); },
      [](int64_t i) { return i < 5 ? 100.0 : 1.0; },
  };
  for (const auto& weight : weights) {
    ExpectNearlyOptimal(Decaying(256, 320, weight), 64);
    ExpectNearlyOptimal(Decaying(256, 100, weight), 32);
    ExpectNearlyOptimal(Decaying(64, 64, weight), 16);
  }
}

TEST(PrincipalBasis, KeepsTheTruncatedSvdsEnergyOnNoise) {
  ExpectNearlyOptimal(Random(512, 1536, 3), 128);
  ExpectNearlyOptimal(Random(512, 256, 4), 64);
  ExpectNearlyOptimal(Random(64, 128, 5), 1);
  ExpectNearlyOptimal(Random(64, 128, 6), 63);
  ExpectNearlyOptimal(Random(128, 64, 7), 63);
}

TEST(PrincipalBasis, ColumnsComeInOrderOfSingularValue) {
  for (const Matrix& m : {Decaying(128, 200, [](int64_t i) { return std::pow(0.8, i); }),
                          Decaying(200, 96, [](int64_t i) { return std::pow(0.8, i); })}) {
    const std::vector<double> s = LapackSingularValues(m);
    const std::vector<float> u = Basis(m, 12);
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_NEAR(std::sqrt(ColumnEnergy(m, u, 12, i)) / s[i], 1.0, 0.01) << i;
    }
  }
}

TEST(PrincipalBasis, FullRankIsTheIdentity) {
  const std::vector<float> u = Basis(Random(8, 20, 1), 8);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(u[i * 8 + j], i == j ? 1.0f : 0.0f);
  }
}

TEST(PrincipalBasis, RankOverTheColumnsSpansThemExactly) {
  Matrix m = Random(96, 20, 2);
  for (int64_t i = 0; i < 96; ++i) m.data[i * 20 + 3] *= 1e-30f;  // a small column spans too
  for (int64_t rank : {20, 33}) {
    const std::vector<float> u = Basis(m, rank);
    EXPECT_EQ(ExpectOrthonormalOrZero(u, 96, rank), 20);
    for (int64_t j = 0; j < 20; ++j) {
      const MatrixView column{m.data.data() + j, 96, 1, 20};
      double length = 0.0, kept = 0.0;
      for (int64_t i = 0; i < 96; ++i) length += std::pow(column.data[i * 20], 2.0);
      for (int64_t a = 0; a < rank; ++a) {
        double dot = 0.0;
        for (int64_t i = 0; i < 96; ++i) {
          dot += static_cast<double>(u[i * rank + a]) * column.data[i * 20];
        }
        kept += dot * dot;
      }
      EXPECT_NEAR(kept / length, 1.0, 1e-5) << j;
    }
  }
}

TEST(PrincipalBasis, RankDeficientMatrixIsKeptWhole) {
  const Matrix m = Decaying(128, 160, [](int64_t i) { return i < 7 ? 1.0 : 0.0; });
  const std::vector<float> u = Basis(m, 16);
  EXPECT_GE(ExpectOrthonormalOrZero(u, 128, 16), 7);
  EXPECT_NEAR(KeptEnergy(m, u, 16) / BestEnergy(m, 16), 1.0, 1e-4);
  const Matrix tall = Decaying(160, 64, [](int64_t i) { return i < 7 ? 1.0 : 0.0; });
  const std::vector<float> v = Basis(tall, 16);
  EXPECT_GE(ExpectOrthonormalOrZero(v, 160, 16), 7);
  EXPECT_NEAR(KeptEnergy(tall, v, 16) / BestEnergy(tall, 16), 1.0, 1e-4);
}

TEST(PrincipalBasis, ConstantMatrixHasTheConstantColumn) {
  for (int64_t n_cols : {3, 40, 200}) {
    const Matrix m{64, n_cols, std::vector<float>(64 * n_cols, -2.5f)};
    const std::vector<float> u = Basis(m, 8);
    EXPECT_GE(ExpectOrthonormalOrZero(u, 64, 8), 1);
    for (int64_t i = 0; i < 64; ++i) EXPECT_NEAR(std::abs(u[i * 8]), 0.125, 1e-5);
  }
}

TEST(PrincipalBasis, ZeroMatrixGivesZero) {
  for (int64_t n_cols : {1, 8, 200}) {
    const Matrix m{64, n_cols, std::vector<float>(64 * n_cols, 0.0f)};
    EXPECT_EQ(Basis(m, 8), std::vector<float>(64 * 8, 0.0f));
  }
}

TEST(PrincipalBasis, OneRowAndOneColumn) {
  EXPECT_EQ(Basis(Random(1, 30, 1), 1), std::vector<float>{1.0f});
  const Matrix column = Random(30, 1, 2);
  const std::vector<float> u = Basis(column, 4);
  EXPECT_EQ(ExpectOrthonormalOrZero(u, 30, 4), 1);
  EXPECT_NEAR(KeptEnergy(column, u, 4) / BestEnergy(column, 1), 1.0, 1e-5);
}

TEST(PrincipalBasis, ScaleOfTheMatrixDoesNotMatter) {
  const Matrix m = Decaying(96, 128, [](int64_t i) { return 1.0 / (i + 1); });
  const std::vector<float> expected = Basis(m, 16);
  for (int exponent : {-100, -60, 60, 120}) {  // powers of two: the same bits
    Matrix scaled = m;
    for (float& x : scaled.data) x = std::ldexp(x, exponent);
    EXPECT_EQ(Basis(scaled, 16), expected) << exponent;
  }
}

TEST(PrincipalBasis, LargestAndDenormalFloatsStayFinite) {
  for (float value : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                      -std::numeric_limits<float>::min()}) {
    Matrix m{64, 80, std::vector<float>(64 * 80, value)};
    m.data[5] = 0.0f;
    const std::vector<float> u = Basis(m, 4);
    EXPECT_GE(ExpectOrthonormalOrZero(u, 64, 4), 1) << value;
    EXPECT_NEAR(std::abs(u[4 * 20]), 0.125, 1e-2);
  }
}

TEST(PrincipalBasis, NonFiniteEntriesGiveZero) {
  for (float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (int64_t rank : {4, 40, 64}) {  // iteration, span of the columns, identity
      Matrix m = Random(64, 32, 1);
      m.data[777] = bad;
      EXPECT_EQ(Basis(m, rank), std::vector<float>(64 * rank, 0.0f)) << bad << " " << rank;
    }
  }
}

TEST(PrincipalBasis, StrideIsRespected) {
  const Matrix m = Random(64, 100, 8);
  Matrix left{64, 72, {}};
  for (int64_t i = 0; i < 64; ++i) {
    left.data.insert(left.data.end(), &m.data[i * 100], &m.data[i * 100 + 72]);
  }
  BasisWorkspace workspace;
  std::vector<float> u(64 * 8);
  PrincipalBasis({m.data.data(), 64, 72, 100}, 8, workspace, u.data());
  EXPECT_EQ(u, Basis(left, 8));
}

TEST(PrincipalBasis, SameBitsAgainAndWithAUsedWorkspace) {
  const Matrix m = Random(128, 96, 9), other = Random(64, 256, 10);
  const std::vector<float> expected = Basis(m, 24);
  BasisWorkspace workspace;
  std::vector<float> u(64 * 16);
  PrincipalBasis(other.view(), 16, workspace, u.data());
  u.assign(128 * 24, NAN);
  PrincipalBasis(m.view(), 24, workspace, u.data());
  EXPECT_EQ(u, expected);
}

// The least rank whose kept energy is `share` of all.
int64_t BestRank(const Matrix& m, double share) {
  const double all = BestEnergy(m, std::min(m.n_rows, m.n_cols));
  int64_t rank = 1;
  while (BestEnergy(m, rank) < share * all) ++rank;
  return rank;
}

TEST(EnergyBasis, KeepsTheShareWithNearlyTheLeastRank) {
  for (const auto& [n_rows, n_cols] : {std::pair<int64_t, int64_t>{96, 64}, {64, 96}}) {
    const Matrix m = Decaying(n_rows, n_cols, [](int64_t i) { return std::exp(-0.05 * i); });
    for (double share : {0.01, 0.3, 0.8, 0.95, 0.999, 1.0}) {
      SCOPED_TRACE(testing::Message() << n_rows << " x " << n_cols << ", share " << share);
      BasisWorkspace workspace;
      std::vector<float> u;
      const int64_t rank = EnergyBasis(m.view(), share, workspace, u);
      ASSERT_EQ(static_cast<int64_t>(u.size()), n_rows * rank);
      ExpectOrthonormalOrZero(u, n_rows, rank);
      EXPECT_GE(KeptEnergy(m, u, rank), (share - 1e-5) * BestEnergy(m, 64));
      EXPECT_LE(rank, BestRank(m, std::min(share, 1 - 1e-6)) + 3);
    }
  }
}

TEST(EnergyBasis, FindsTheRankOfALowRankMatrix) {
  const Matrix m = Decaying(80, 60, [](int64_t i) { return i < 6 ? 1.0 : 0.0; });
  BasisWorkspace workspace;
  std::vector<float> u;
  EXPECT_EQ(EnergyBasis(m.view(), 1.0, workspace, u), 6);
}

TEST(EnergyBasis, IsOneOfNothing) {
  Matrix m{20, 10, std::vector<float>(200)};
  BasisWorkspace workspace;
  std::vector<float> u;
  EXPECT_EQ(EnergyBasis(m.view(), 0.9, workspace, u), 1);
  m.data[5] = NAN;
  EXPECT_EQ(EnergyBasis(m.view(), 0.9, workspace, u), 1);
  EXPECT_EQ(u, std::vector<float>(20));
}

TEST(SingularValues, AgreeWithLapack) {
  for (const Matrix& m : {Random(40, 70, 1), Random(90, 33, 2), Random(1, 5, 3), Random(5, 1, 4),
                          Decaying(64, 64, [](int64_t i) { return std::pow(0.7, i); })}) {
    const std::vector<double> expected = LapackSingularValues(m);
    const std::vector<double> s = SingularValues(m.view());
    ASSERT_EQ(s.size(), expected.size());
    for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(s[i], expected[i], 1e-7 * expected[0]);
  }
}

TEST(SingularValues, ZeroAndNonFiniteMatricesGiveZeros) {
  Matrix m{4, 6, std::vector<float>(24, 0.0f)};
  EXPECT_EQ(SingularValues(m.view()), std::vector<double>(4, 0.0));
  m.data[3] = NAN;
  EXPECT_EQ(SingularValues(m.view()), std::vector<double>(4, 0.0));
}

TEST(SingularValues, LargestFloatsDoNotOverflow) {
  const Matrix m{3, 3, std::vector<float>(9, std::numeric_limits<float>::max())};
  EXPECT_NEAR(SingularValues(m.view())[0] / (3.0 * std::numeric_limits<float>::max()), 1, 1e-12);
}

TEST(SvdEntropyRank, EqualValuesCountThemselves) {
  for (int64_t n : {1, 2, 7, 64, 2048}) {
    EXPECT_EQ(SvdEntropyRank(std::vector<double>(n, 0.37)), n);
  }
}

// Expected values from the definition: ceil(2^(-log2 sum p^2) - 1e-9).
TEST(SvdEntropyRank, EqualsTheDefinition) {
  const std::vector<double> cases[] = {
      {5, 1, 0}, {3, 2, 1}, {1, 1e-8}, {4, 3, 2, 1, 0.5}, {10, 9, 1, 1, 1, 1}};
  for (const std::vector<double>& sigma : cases) {
    double sum = 0.0, squares = 0.0;
    for (double s : sigma) sum += s;
    for (double s : sigma) squares += (s / sum) * (s / sum);
    EXPECT_EQ(SvdEntropyRank(sigma),
              static_cast<int64_t>(std::ceil(std::exp2(-std::log2(squares)) - 1e-9)));
  }
  EXPECT_EQ(SvdEntropyRank({{5.0, 1.0, 0.0}}), 2);  // 36 / 26
  EXPECT_EQ(SvdEntropyRank({{3.0, 2.0, 1.0}}), 3);  // 36 / 14
}

TEST(SvdEntropyRank, ZeroAndNoValuesNeedNothing) {
  EXPECT_EQ(SvdEntropyRank({}), 0);
  EXPECT_EQ(SvdEntropyRank({{0.0, 0.0}}), 0);
}

TEST(SvdEntropyRank, LowRankMatrixNeedsAtMostItsRank) {
  const Matrix m = Decaying(60, 80, [](int64_t i) { return i < 5 ? 1.0 : 0.0; });
  const int64_t rank = SvdEntropyRank(SingularValues(m.view()));
  EXPECT_LE(rank, 5);
  EXPECT_GE(rank, 4);
}

}  // namespace
}  // namespace lowkey
