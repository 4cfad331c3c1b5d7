// Time and kept energy of atp's two decompositions, on one thread, for the matrices of a block of
// tokens (engine/attention/atp): random ones whose singular values fall as 1 / sqrt(i):
//   decomposition_bench
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "absl/time/clock.h"
#include "engine/kernels/kernels.h"
#include "engine/lowrank/alternating.h"
#include "engine/lowrank/basis.h"

namespace lowkey {
namespace {

// n_rows, n_cols multiples of 64.
std::vector<float> Decaying(int64_t n_rows, int64_t n_cols) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  const int64_t k = std::min(n_rows, n_cols);
  std::vector<float> left(n_rows * k), right(k * n_cols), m(n_rows * n_cols);
  for (float& x : left) x = normal(rng);
  for (float& x : right) x = normal(rng);
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] /= std::sqrt(1.0f + static_cast<float>(static_cast<int64_t>(i) % k));
  }
  Kernels().Gemm(StorageType::kFloat32,
                 {left.data(), k, right.data(), n_cols, Kernels().panel_columns, m.data(), n_cols,
                  n_rows, n_cols, k});
  return m;
}

// |U^T m|^2, U [n_rows, rank].
double KeptEnergy(const MatrixView& m, const std::vector<float>& u, int64_t rank) {
  std::vector<float> transposed(u.size()), kept(rank * m.n_cols);
  for (int64_t i = 0; i < m.n_rows; ++i) {
    for (int64_t j = 0; j < rank; ++j) transposed[j * m.n_rows + i] = u[i * rank + j];
  }
  Kernels().Gemm(StorageType::kFloat32,
                 {transposed.data(), m.n_rows, m.data, m.stride, Kernels().panel_columns,
                  kept.data(), m.n_cols, rank, m.n_cols, m.n_rows});
  double energy = 0;
  for (float x : kept) energy += static_cast<double>(x) * x;
  return energy;
}

double MedianMs(const std::function<void()>& run) {
  std::vector<double> ms;
  for (int i = 0; i < 5; ++i) {
    const absl::Time start = absl::Now();
    run();
    ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

void Measure(const char* name, int64_t n_rows, int64_t n_cols, int64_t rank) {
  const std::vector<float> data = Decaying(n_rows, n_cols);
  const MatrixView m{data.data(), n_rows, n_cols, n_cols};
  double best = 0;
  const std::vector<double> sigma = SingularValues(m);
  for (int64_t i = 0; i < rank; ++i) best += sigma[i] * sigma[i];
  BasisWorkspace workspace;
  std::vector<float> u(n_rows * rank);
  const double block_ms = MedianMs([&] { PrincipalBasis(m, rank, workspace, u.data()); });
  const double block = KeptEnergy(m, u, rank) / best;
  const double alternating_ms =
      MedianMs([&] { AlternatingBasis(m, rank, /*n_sweeps=*/2, workspace, u.data()); });
  const double alternating = KeptEnergy(m, u, rank) / best;
  std::printf("%-28s %4d x %4d r %3d %9.2f %9.4f %14.2f %9.4f\n", name, static_cast<int>(n_rows),
              static_cast<int>(n_cols), static_cast<int>(rank), block_ms, block, alternating_ms,
              alternating);
}

}  // namespace
}  // namespace lowkey

int main() {
  std::printf("%-48s %9s %9s %14s %9s\n", "", "block ms", "of best", "alternating ms", "of best");
  lowkey::Measure("kv, block 128", 128, 128, 8);
  lowkey::Measure("layer, 3 KV heads of 64", 512, 384, 32);
  lowkey::Measure("layer, 12 KV heads of 64", 512, 1536, 32);
  lowkey::Measure("layer, 12 KV heads of 64", 512, 1536, 64);
  return 0;
}
