#include "engine/lowrank/cholesky.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/lowrank/matmul.h"

namespace lowkey {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kTaskColumns = 256;

// row -= factor * other, over columns [begin, end).
void Subtract(float factor, const float* other, int64_t begin, int64_t end, float* row) {
  for (int64_t j = begin; j < end; ++j) row[j] -= factor * other[j];
}

// Factors the block on the diagonal that begins at k0.
bool FactorBlock(int64_t n, int64_t k0, int64_t k_end, float* a) {
  for (int64_t k = k0; k < k_end; ++k) {
    float* row = a + k * n;
    if (!(row[k] > 0)) return false;
    const float pivot = std::sqrt(row[k]);
    if (!std::isfinite(pivot)) return false;
    for (int64_t j = k; j < k_end; ++j) row[j] /= pivot;
    for (int64_t i = k + 1; i < k_end; ++i) Subtract(row[i], row, i, k_end, a + i * n);
  }
  return true;
}

// Solves for the columns [begin, end) of the factored block's rows.
void SolveColumns(int64_t n, int64_t k0, int64_t k_end, int64_t begin, int64_t end, float* a) {
  for (int64_t k = k0; k < k_end; ++k) {
    float* row = a + k * n;
    for (int64_t m = k0; m < k; ++m) Subtract(a[m * n + k], a + m * n, begin, end, row);
    const float pivot = row[k];
    for (int64_t j = begin; j < end; ++j) row[j] /= pivot;
  }
}

}  // namespace

bool UpperCholesky(int64_t n, ThreadPool& pool, float* a) {
  std::vector<std::vector<float>> packs(pool.n_threads());
  for (int64_t k0 = 0; k0 < n; k0 += kBlock) {
    const int64_t k_end = std::min(n, k0 + kBlock);
    if (!FactorBlock(n, k0, k_end, a)) return false;
    pool.ParallelFor((n - k_end + kTaskColumns - 1) / kTaskColumns, [&](int64_t task, int) {
      const int64_t begin = k_end + task * kTaskColumns;
      SolveColumns(n, k0, k_end, begin, std::min(n, begin + kTaskColumns), a);
    });
    const float* solved = a + k0 * n;
    pool.ParallelFor((n - k_end + kBlock - 1) / kBlock, [&](int64_t task, int thread) {
      const int64_t i = k_end + task * kBlock;
      Matmul({std::min(kBlock, n - i), n - i, k_end - k0}, {solved + i, 1, n}, {solved + i, n, 1},
             {.accumulate = true, .alpha = -1.0f}, {a + i * n + i, n}, packs[thread]);
    });
  }
  return true;
}

}  // namespace lowkey
