#include "engine/lowrank/alternating.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lowkey {
namespace {

constexpr int64_t kLanes = 16;

// Sums in 16 chains, so that the compiler vectorizes the loop.
float Dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(float s, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += s * x[i];
}

// The smallest length of a direction: the square of a smaller one would not be a normal float.
constexpr float kSmallest = 1e-18f;

// The residual of m: what the directions so far leave.
struct Residual {
  int64_t n_rows = 0, n_cols = 0;
  float* data = nullptr;
  float* row(int64_t i) { return data + i * n_cols; }
};

int64_t LongestRow(Residual& m) {
  int64_t longest = 0;
  float most = -1;
  for (int64_t i = 0; i < m.n_rows; ++i) {
    const float length = Dot(m.row(i), m.row(i), m.n_cols);
    if (length > most) most = length, longest = i;
  }
  return longest;
}

// Finds one direction and subtracts it from the residual; false when nothing is left.
bool TakeDirection(Residual& m, int n_sweeps, float* column, std::vector<float>& row) {
  const float* longest = m.row(LongestRow(m));
  row.assign(longest, longest + m.n_cols);
  for (int sweep = 0; sweep < n_sweeps; ++sweep) {
    const float row_energy = Dot(row.data(), row.data(), m.n_cols);
    if (!(row_energy > kSmallest * kSmallest)) return false;
    for (int64_t i = 0; i < m.n_rows; ++i) {
      column[i] = Dot(m.row(i), row.data(), m.n_cols) / row_energy;
    }
    const float column_energy = Dot(column, column, m.n_rows);
    if (!(column_energy > kSmallest * kSmallest)) return false;
    std::fill(row.begin(), row.end(), 0.0f);
    for (int64_t i = 0; i < m.n_rows; ++i) {
      AddScaled(column[i] / column_energy, m.row(i), m.n_cols, row.data());
    }
  }
  for (int64_t i = 0; i < m.n_rows; ++i) AddScaled(-column[i], row.data(), m.n_cols, m.row(i));
  return true;
}

}  // namespace

void AlternatingBasis(const MatrixView& m, int64_t rank, int n_sweeps, BasisWorkspace& w,
                      float* u) {
  std::fill_n(u, m.n_rows * rank, 0.0f);
  w.scaled.resize(m.n_rows * m.n_cols);
  float energy = 0;
  for (int64_t i = 0; i < m.n_rows; ++i) {
    const float* row = m.data + i * m.stride;
    std::copy_n(row, m.n_cols, w.scaled.data() + i * m.n_cols);
    energy += Dot(row, row, m.n_cols);
  }
  if (!std::isfinite(energy)) return;
  Residual residual{m.n_rows, m.n_cols, w.scaled.data()};
  w.left.assign(rank * m.n_rows, 0.0f);
  for (int64_t i = 0; i < rank; ++i) {
    float* column = w.left.data() + i * m.n_rows;
    if (TakeDirection(residual, n_sweeps, column, w.gram)) continue;
    std::fill_n(column, m.n_rows, 0.0f);
    break;
  }
  // The directions are orthogonal up to rounding.
  OrthonormalizeRows(rank, m.n_rows, w.left.data(), w.subspace.orthonormalize);
  for (int64_t i = 0; i < m.n_rows; ++i) {
    for (int64_t j = 0; j < rank; ++j) u[i * rank + j] = w.left[j * m.n_rows + i];
  }
}

}  // namespace lowkey
