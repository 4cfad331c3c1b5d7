#include "engine/lowrank/alternating.h"

#include <cmath>
#include <random>

#include "tests/engine/lowrank/lowrank_testing.h"

namespace lowkey {
namespace {

// Random factors whose weights fall by `decay`.
Matrix Decaying(int64_t n_rows, int64_t n_cols, int64_t n_factors, double decay) {
  Matrix m{n_rows, n_cols, std::vector<float>(n_rows * n_cols)};
  std::mt19937 rng(1);
  std::normal_distribution<double> normal;
  for (int64_t f = 0; f < n_factors; ++f) {
    std::vector<double> right(n_cols);
    for (double& x : right) x = normal(rng) * std::pow(decay, static_cast<double>(f));
    for (int64_t i = 0; i < n_rows; ++i) {
      const double left = normal(rng);
      for (int64_t j = 0; j < n_cols; ++j) {
        m.data[i * n_cols + j] += static_cast<float>(left * right[j]);
      }
    }
  }
  return m;
}

std::vector<float> Alternating(const Matrix& m, int64_t rank, int n_sweeps = 2) {
  BasisWorkspace workspace;
  std::vector<float> u(m.n_rows * rank, NAN);
  AlternatingBasis(m.view(), rank, n_sweeps, workspace, u.data());
  return u;
}

// Compares the energy that the paper's algorithm keeps with LAPACK's optimum and the other
// decomposition.
TEST(AlternatingBasis, KeepsMostOfWhatTheTruncatedSvdKeepsAndBlockKeepsMore) {
  for (const auto& [n_rows, n_cols] :
       {std::pair<int64_t, int64_t>{128, 96}, {96, 128}, {256, 64}}) {
    for (double decay : {0.8, 0.95, 1.0}) {
      const Matrix m = Decaying(n_rows, n_cols, 60, decay);
      for (int64_t rank : {1, 8, 24}) {
        SCOPED_TRACE(testing::Message()
                     << n_rows << " x " << n_cols << ", decay " << decay << ", rank " << rank);
        const double best = BestEnergy(m, rank);
        const double kept = KeptEnergy(m, Alternating(m, rank), rank);
        EXPECT_LE(kept, best * (1 + 1e-5));
        EXPECT_GE(kept, 0.6 * best);  // two sweeps are few where the spectrum is flat
        BasisWorkspace workspace;
        std::vector<float> block(n_rows * rank);
        PrincipalBasis(m.view(), rank, workspace, block.data());
        EXPECT_GE(KeptEnergy(m, block, rank), kept * (1 - 1e-5));
      }
    }
  }
}

TEST(AlternatingBasis, SweepsBringItNearerToTheOptimum) {
  const Matrix m = Decaying(128, 96, 60, 0.97);
  double last = 0;
  for (int n_sweeps : {1, 2, 8}) {
    const double kept = KeptEnergy(m, Alternating(m, 16, n_sweeps), 16);
    EXPECT_GT(kept, last);
    last = kept;
  }
}

TEST(AlternatingBasis, ColumnsAreOrthonormal) {
  const Matrix m = Decaying(100, 80, 80, 0.9);
  for (int64_t rank : {1, 7, 80, 100}) {
    ExpectOrthonormalOrZero(Alternating(m, rank), 100, rank);
  }
}

TEST(AlternatingBasis, RankOfTheMatrixKeepsAllOfIt) {
  const Matrix m = Decaying(64, 40, 5, 0.7);
  const double all = KeptEnergy(m, Alternating(m, 40), 40);
  EXPECT_NEAR(KeptEnergy(m, Alternating(m, 5), 5), all, 1e-3 * all);
}

TEST(AlternatingBasis, ZeroOrNoNumbersGiveZero) {
  Matrix m{20, 10, std::vector<float>(200)};
  for (float x : Alternating(m, 4)) EXPECT_EQ(x, 0.0f);
  m.data[37] = NAN;
  for (float x : Alternating(m, 4)) EXPECT_EQ(x, 0.0f);
  m.data[37] = 1e30f;
  for (float x : Alternating(m, 4)) EXPECT_EQ(x, 0.0f);
}

}  // namespace
}  // namespace lowkey
