#include "engine/lowrank/orthonormalize.h"

#include <algorithm>
#include <cmath>

#include "engine/lowrank/matmul.h"

namespace lowkey {
namespace {

constexpr int64_t kPanelRows = 32;

// Bounds of a row's residual after its projections are taken out, relative to the row: below the
// first bound the residual is rounding. In the second pass every row has length one and loses only
// the first pass's rounding, unless the row was nothing but rounding.
constexpr float kDependentFirst = 2e-6f;
constexpr float kDependentSecond = 0.1f;

// Eight partial sums let the compiler vectorize without reordering.
float Dot(int64_t n, const float* x, const float* y) {
  constexpr int kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  float sum = 0.0f;
  for (; i < n; ++i) sum += x[i] * y[i];
  for (float partial : sums) sum += partial;
  return sum;
}

void Axpy(int64_t n, float a, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

void Scale(int64_t n, float a, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= a;
}

struct Panel {
  int64_t begin = 0, n_rows = 0;
};

// Takes the projections onto rows [0, panel.begin) out of the panel's rows.
void ProjectOutEarlier(const Panel& panel, int64_t n_cols, float* y,
                       OrthonormalizeScratch& scratch) {
  if (panel.begin == 0) return;
  float* rows = y + panel.begin * n_cols;
  scratch.coefficients.resize(kPanelRows * panel.begin);
  const MatmulOutput coefficients{scratch.coefficients.data(), panel.begin};
  Matmul({panel.n_rows, panel.begin, n_cols}, {rows, n_cols, 1}, {y, 1, n_cols}, {}, coefficients,
         scratch.pack);
  Matmul({panel.n_rows, n_cols, panel.begin}, {coefficients.data, coefficients.stride, 1},
         {y, n_cols, 1}, {.accumulate = true, .alpha = -1.0f}, {rows, n_cols}, scratch.pack);
}

// Modified Gram-Schmidt inside the panel; lengths[i] is row i's length before any projection.
void OrthonormalizeInside(const Panel& panel, int64_t n_cols, const float* lengths, float dependent,
                          float* y) {
  for (int64_t i = 0; i < panel.n_rows; ++i) {
    float* row = y + (panel.begin + i) * n_cols;
    for (int64_t j = 0; j < i; ++j) {
      const float* earlier = y + (panel.begin + j) * n_cols;
      Axpy(n_cols, -Dot(n_cols, row, earlier), earlier, row);
    }
    const float length = std::sqrt(Dot(n_cols, row, row));
    const bool keep = length > dependent * lengths[i] && std::isfinite(1.0f / length);
    if (keep) {
      Scale(n_cols, 1.0f / length, row);
    } else {
      std::fill_n(row, n_cols, 0.0f);
    }
  }
}

}  // namespace

void OrthonormalizeRows(int64_t n_rows, int64_t n_cols, float* y, OrthonormalizeScratch& scratch) {
  for (int64_t begin = 0; begin < n_rows; begin += kPanelRows) {
    const Panel panel{begin, std::min(kPanelRows, n_rows - begin)};
    for (float dependent : {kDependentFirst, kDependentSecond}) {
      float lengths[kPanelRows];
      for (int64_t i = 0; i < panel.n_rows; ++i) {
        const float* row = y + (begin + i) * n_cols;
        lengths[i] = std::sqrt(Dot(n_cols, row, row));
      }
      ProjectOutEarlier(panel, n_cols, y, scratch);
      OrthonormalizeInside(panel, n_cols, lengths, dependent, y);
    }
  }
}

}  // namespace lowkey
