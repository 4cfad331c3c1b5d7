#include "engine/lowrank/subspace.h"

#include <cmath>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

// Q diag(values) Q^T with Q = I - 2 v v^T: a dense matrix of known spectrum.
std::vector<float> Gram(const std::vector<double>& values) {
  const int64_t n = values.size();
  std::vector<double> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = 1.0 + i % 7;
  double squares = 0.0;
  for (double x : v) squares += x * x;
  for (double& x : v) x /= std::sqrt(squares);
  const auto q = [&](int64_t i, int64_t j) { return (i == j ? 1.0 : 0.0) - 2.0 * v[i] * v[j]; };
  std::vector<float> gram(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t e = 0; e < n; ++e) sum += q(i, e) * values[e] * q(j, e);
      gram[i * n + j] = static_cast<float>(sum);
    }
  }
  return gram;
}

double Rayleigh(const std::vector<float>& gram, int64_t n, const float* v) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(v[i]) * gram[i * n + j] * v[j];
  }
  return sum;
}

double Trace(const std::vector<float>& gram, int64_t n, int64_t n_found,
             const SubspaceScratch& scratch) {
  double sum = 0.0;
  for (int64_t i = 0; i < n_found; ++i) sum += Rayleigh(gram, n, &scratch.basis[i * n]);
  return sum;
}

TEST(LeadingEigenvectors, SeparatedEigenvaluesComeInOrder) {
  std::vector<double> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::pow(0.5, i);
  const std::vector<float> gram = Gram(values);
  SubspaceScratch scratch;
  ASSERT_EQ(LeadingEigenvectors(64, gram.data(), 6, scratch), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(Rayleigh(gram, 64, &scratch.basis[i * 64]) / values[i], 1.0, 1e-4) << i;
  }
}

TEST(LeadingEigenvectors, FlatSpectrumStillKeepsTheTopTrace) {
  const int64_t n = 200, n_wanted = 40;
  std::vector<double> values(n);
  double best = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    values[i] = 2.0 - static_cast<double>(i) / n;
    if (i < n_wanted) best += values[i];
  }
  const std::vector<float> gram = Gram(values);
  SubspaceScratch scratch;
  ASSERT_EQ(LeadingEigenvectors(n, gram.data(), n_wanted, scratch), n_wanted);
  EXPECT_GT(Trace(gram, n, n_wanted, scratch), 0.99 * best);
}

TEST(LeadingEigenvectors, FindsNoMoreThanTheRank) {
  std::vector<double> values(50, 0.0);
  values[0] = 3.0, values[1] = 2.0, values[2] = 1.0;
  const std::vector<float> gram = Gram(values);
  SubspaceScratch scratch;
  const int64_t n_found = LeadingEigenvectors(50, gram.data(), 10, scratch);
  ASSERT_GE(n_found, 3);
  ASSERT_LE(n_found, 10);
  EXPECT_NEAR(Trace(gram, 50, 3, scratch), 6.0, 1e-4);
}

TEST(LeadingEigenvectors, ZeroMatrixHasNone) {
  const std::vector<float> gram(30 * 30, 0.0f);
  SubspaceScratch scratch;
  EXPECT_EQ(LeadingEigenvectors(30, gram.data(), 4, scratch), 0);
}

TEST(LeadingEigenvectors, IdentityGivesAnyOrthonormalRows) {
  const std::vector<float> gram = Gram(std::vector<double>(33, 1.0));
  SubspaceScratch scratch;
  ASSERT_EQ(LeadingEigenvectors(33, gram.data(), 33, scratch), 33);
  EXPECT_NEAR(Trace(gram, 33, 33, scratch), 33.0, 1e-3);
}

TEST(LeadingEigenvectors, ScratchOfAnotherSizeChangesNothing) {
  std::vector<double> values(48);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / (i + 1);
  const std::vector<float> gram = Gram(values);
  SubspaceScratch fresh, used;
  const std::vector<float> other = Gram(std::vector<double>(90, 2.0));
  LeadingEigenvectors(90, other.data(), 50, used);
  ASSERT_EQ(LeadingEigenvectors(48, gram.data(), 8, fresh), 8);
  ASSERT_EQ(LeadingEigenvectors(48, gram.data(), 8, used), 8);
  for (int i = 0; i < 8 * 48; ++i) ASSERT_EQ(fresh.basis[i], used.basis[i]);
}

}  // namespace
}  // namespace lowkey
