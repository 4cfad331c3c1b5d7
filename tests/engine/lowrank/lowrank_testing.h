#ifndef LOWKEY_TESTS_ENGINE_LOWRANK_LOWRANK_TESTING_H_
#define LOWKEY_TESTS_ENGINE_LOWRANK_LOWRANK_TESTING_H_

#include <lapacke.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/lowrank/basis.h"
#include "gtest/gtest.h"

namespace lowkey {

struct Matrix {
  int64_t n_rows = 0, n_cols = 0;
  std::vector<float> data;
  MatrixView view() const { return {data.data(), n_rows, n_cols, n_cols}; }
};

inline std::vector<double> LapackSingularValues(const Matrix& m) {
  std::vector<double> a(m.data.begin(), m.data.end());
  std::vector<double> s(std::min(m.n_rows, m.n_cols));
  // The transpose has the same singular values.
  EXPECT_EQ(LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', m.n_cols, m.n_rows, a.data(), m.n_cols, s.data(),
                           nullptr, 1, nullptr, 1),
            0);
  return s;
}

// The most that any basis of `rank` columns keeps.
inline double BestEnergy(const Matrix& m, int64_t rank) {
  const std::vector<double> s = LapackSingularValues(m);
  double sum = 0.0;
  for (int64_t i = 0; i < std::min<int64_t>(rank, s.size()); ++i) sum += s[i] * s[i];
  return sum;
}

// |U^T m|^2 of column `col` of U [n_rows, rank].
inline double ColumnEnergy(const Matrix& m, const std::vector<float>& u, int64_t rank,
                           int64_t col) {
  double energy = 0.0;
  for (int64_t j = 0; j < m.n_cols; ++j) {
    double sum = 0.0;
    for (int64_t i = 0; i < m.n_rows; ++i) {
      sum += static_cast<double>(u[i * rank + col]) * m.data[i * m.n_cols + j];
    }
    energy += sum * sum;
  }
  return energy;
}

inline double KeptEnergy(const Matrix& m, const std::vector<float>& u, int64_t rank) {
  double energy = 0.0;
  for (int64_t col = 0; col < rank; ++col) energy += ColumnEnergy(m, u, rank, col);
  return energy;
}

// Each column is a unit vector or zero, all orthogonal to 1e-5. Returns how many are not zero.
inline int64_t ExpectOrthonormalOrZero(const std::vector<float>& u, int64_t n_rows, int64_t rank) {
  int64_t n_found = 0;
  for (int64_t a = 0; a < rank; ++a) {
    for (int64_t b = 0; b <= a; ++b) {
      double dot = 0.0;
      for (int64_t i = 0; i < n_rows; ++i) {
        dot += static_cast<double>(u[i * rank + a]) * u[i * rank + b];
      }
      const bool unit = a == b && dot != 0.0;
      EXPECT_NEAR(dot, unit ? 1.0 : 0.0, 1e-5) << a << "," << b;
      n_found += unit ? 1 : 0;
    }
  }
  return n_found;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_LOWRANK_LOWRANK_TESTING_H_
