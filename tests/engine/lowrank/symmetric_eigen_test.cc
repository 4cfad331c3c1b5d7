#include "engine/lowrank/symmetric_eigen.h"

#include <lapacke.h>

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

std::vector<double> RandomSymmetric(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> a(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) a[i * n + j] = a[j * n + i] = normal(rng);
  }
  return a;
}

std::vector<double> LapackEigenvalues(int64_t n, std::vector<double> a) {
  std::vector<double> values(n);
  LAPACKE_dsyev(LAPACK_ROW_MAJOR, 'N', 'U', n, a.data(), n, values.data());
  return {values.rbegin(), values.rend()};
}

void ExpectEigenvectors(int64_t n, const std::vector<double>& a, const std::vector<double>& values,
                        const std::vector<double>& rows) {
  for (int64_t e = 0; e < n; ++e) {
    const double* v = &rows[e * n];
    for (int64_t i = 0; i < n; ++i) {
      double av = 0.0;
      for (int64_t j = 0; j < n; ++j) av += a[i * n + j] * v[j];
      ASSERT_NEAR(av, values[e] * v[i], 1e-10 * n) << e;
    }
    for (int64_t f = 0; f <= e; ++f) {
      double dot = 0.0;
      for (int64_t j = 0; j < n; ++j) dot += v[j] * rows[f * n + j];
      ASSERT_NEAR(dot, e == f ? 1.0 : 0.0, 1e-11 * n);
    }
  }
}

TEST(SymmetricEigen, RandomMatricesAgreeWithLapack) {
  for (int64_t n : {1, 2, 3, 17, 136}) {
    const std::vector<double> a = RandomSymmetric(n, n);
    const std::vector<double> expected = LapackEigenvalues(n, a);
    std::vector<double> work = a, rows = a;
    const std::vector<double> values = SymmetricEigenvalues(n, work);
    const std::vector<double> with_vectors = SymmetricEigenvectors(n, rows);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(values[i], expected[i], 1e-12 * n);
      EXPECT_NEAR(with_vectors[i], expected[i], 1e-12 * n);
    }
    ExpectEigenvectors(n, a, with_vectors, rows);
  }
}

TEST(SymmetricEigen, DiagonalMatrixIsSorted) {
  std::vector<double> a = {1, 0, 0, 0, 5, 0, 0, 0, -2};
  EXPECT_EQ(SymmetricEigenvectors(3, a), (std::vector<double>{5, 1, -2}));
  EXPECT_EQ(a, (std::vector<double>{0, 1, 0, 1, 0, 0, 0, 0, 1}));
}

TEST(SymmetricEigen, ZeroMatrixHasTheUnitVectors) {
  std::vector<double> a(16, 0.0);
  EXPECT_EQ(SymmetricEigenvectors(4, a), std::vector<double>(4, 0.0));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a[i * 4 + i], 1.0);
}

TEST(SymmetricEigen, RankOneMatrixKeepsItsVectorsOrthonormal) {
  const int64_t n = 60;
  const std::vector<double> a(n * n, 1.0);
  std::vector<double> rows = a;
  const std::vector<double> values = SymmetricEigenvectors(n, rows);
  EXPECT_NEAR(values[0], n, 1e-10);
  for (int64_t i = 1; i < n; ++i) EXPECT_NEAR(values[i], 0.0, 1e-10);
  ExpectEigenvectors(n, a, values, rows);
}

TEST(SymmetricEigen, RepeatedEigenvaluesAndWideScales) {
  const int64_t n = 40;
  std::vector<double> q = RandomSymmetric(n, 9);
  SymmetricEigenvectors(n, q);
  std::vector<double> a(n * n, 0.0);
  for (int64_t e = 0; e < n; ++e) {
    const double value = e < 10 ? 3.0 : std::pow(10.0, -static_cast<double>(e));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) a[i * n + j] += value * q[e * n + i] * q[e * n + j];
    }
  }
  std::vector<double> rows = a;
  const std::vector<double> values = SymmetricEigenvectors(n, rows);
  for (int64_t e = 0; e < 10; ++e) EXPECT_NEAR(values[e], 3.0, 1e-12);
  EXPECT_NEAR(values[10], 1e-10, 1e-13);
  ExpectEigenvectors(n, a, values, rows);
}

TEST(SymmetricEigen, HugeAndTinyEntriesDoNotOverflow) {
  for (double scale : {1e150, 1e-150}) {
    std::vector<double> a = RandomSymmetric(12, 2);
    const std::vector<double> expected = LapackEigenvalues(12, a);
    for (double& x : a) x *= scale;
    const std::vector<double> values = SymmetricEigenvalues(12, a);
    for (int i = 0; i < 12; ++i) EXPECT_NEAR(values[i] / scale, expected[i], 1e-11);
  }
}

}  // namespace
}  // namespace lowkey
