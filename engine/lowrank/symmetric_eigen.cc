#include "engine/lowrank/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/kernels/kernels.h"

namespace lowkey {
namespace {

struct Tridiagonal {
  std::vector<double> diagonal;  // [n]
  std::vector<double> below;     // [n]; below[i] couples i and i + 1, the last is 0
  std::vector<double> beta;      // [n]; reflector k is I - beta[k] v v^T, v = a's row k right of k
};

// Replaces x [n] by v and returns beta so that (I - beta v v^T) x = (alpha, 0, ...); sets `alpha`.
// beta = 0 where x is already of that form.
double MakeReflector(int64_t n, double* x, double& alpha) {
  double tail = 0.0;
  for (int64_t i = 1; i < n; ++i) tail = std::max(tail, std::abs(x[i]));
  alpha = x[0];
  if (tail == 0.0) return 0.0;
  const double scale = std::max(tail, std::abs(x[0]));
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] /= scale;
    sum += x[i] * x[i];
  }
  const double norm = std::copysign(std::sqrt(sum), x[0]);
  x[0] += norm;
  alpha = -norm * scale;
  return 1.0 / (norm * x[0]);
}

Tridiagonal Tridiagonalize(int64_t n, double* a) {
  Tridiagonal t{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n)};
  std::vector<double> w(n);
  const KernelTable& kernels = Kernels();
  for (int64_t k = 0; k + 1 < n; ++k) {
    const int64_t size = n - k - 1;
    double* v = a + k * n + k + 1;
    t.diagonal[k] = a[k * n + k];
    const double beta = t.beta[k] = MakeReflector(size, v, t.below[k]);
    if (beta == 0.0) continue;
    // w = beta A v - (beta^2 / 2) (v^T A v) v, then A -= v w^T + w v^T.
    std::fill_n(w.begin(), size, 0.0);
    for (int64_t i = 0; i < size; ++i) {
      kernels.add_scaled_f64(beta * v[i], a + (k + 1 + i) * n + k + 1, w.data(), size);
    }
    double dot = 0.0;
    for (int64_t i = 0; i < size; ++i) dot += w[i] * v[i];
    kernels.add_scaled_f64(-0.5 * beta * dot, v, w.data(), size);
    for (int64_t i = 0; i < size; ++i) {
      kernels.add_two_scaled_f64(-v[i], w.data(), -w[i], v, a + (k + 1 + i) * n + k + 1, size);
    }
  }
  if (n > 0) t.diagonal[n - 1] = a[n * n - 1];
  return t;
}

// Writes the transpose of the product of all reflectors to q [n, n].
void FormTransformation(int64_t n, const double* a, const Tridiagonal& t, std::vector<double>& q) {
  q.assign(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) q[i * n + i] = 1.0;
  std::vector<double> sum(n);
  const KernelTable& kernels = Kernels();
  for (int64_t k = n - 2; k >= 0; --k) {
    if (t.beta[k] == 0.0) continue;
    const int64_t size = n - k - 1;
    const double* v = a + k * n + k + 1;
    double* corner = q.data() + (k + 1) * n + k + 1;
    std::fill_n(sum.begin(), size, 0.0);
    for (int64_t i = 0; i < size; ++i) {
      kernels.add_scaled_f64(v[i], corner + i * n, sum.data(), size);
    }
    for (int64_t i = 0; i < size; ++i) {
      kernels.add_scaled_f64(-t.beta[k] * v[i], sum.data(), corner + i * n, size);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) std::swap(q[i * n + j], q[j * n + i]);
  }
}

// Takes one implicit QL step on rows [first, last] of the tridiagonal matrix and rotates rows of q
// (null: eigenvalues only).
void QlStep(int64_t first, int64_t last, int64_t n, Tridiagonal& t, double* q) {
  std::vector<double>&d = t.diagonal, &e = t.below;
  double g = (d[first + 1] - d[first]) / (2.0 * e[first]);
  double r = std::hypot(g, 1.0);
  g = d[last] - d[first] + e[first] / (g + std::copysign(r, g));
  double s = 1.0, c = 1.0, p = 0.0;
  for (int64_t i = last - 1; i >= first; --i) {
    const double f = s * e[i], b = c * e[i];
    r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0.0) {  // underflow has split the matrix: start over
      d[i + 1] -= p;
      e[last] = 0.0;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2.0 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    if (q != nullptr) Kernels().rotate_f64(c, s, q + i * n, q + (i + 1) * n, n);
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0.0;
}

void QlIterate(int64_t n, Tridiagonal& t, double* q) {
  constexpr int kMaxSteps = 60;  // per eigenvalue; two or three are usual
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  double norm = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    norm = std::max(norm, std::abs(t.diagonal[i]) + std::abs(t.below[i]));
  }
  for (int64_t first = 0; first < n; ++first) {
    for (int step = 0; step < kMaxSteps; ++step) {
      int64_t last = first;
      while (last + 1 < n) {
        const double size = std::abs(t.diagonal[last]) + std::abs(t.diagonal[last + 1]);
        // A coupling below the whole matrix's rounding splits it too: a rank-deficient matrix has
        // runs of diagonals that are nothing but rounding.
        if (std::abs(t.below[last]) <= kEpsilon * std::max(size, 0.1 * norm)) break;
        ++last;
      }
      if (last == first) break;
      QlStep(first, last, n, t, q);
    }
  }
}

}  // namespace

std::vector<double> SymmetricEigenvalues(int64_t n, std::vector<double>& a) {
  Tridiagonal t = Tridiagonalize(n, a.data());
  QlIterate(n, t, nullptr);
  std::sort(t.diagonal.begin(), t.diagonal.end(), std::greater<>());
  return std::move(t.diagonal);
}

std::vector<double> SymmetricEigenvectors(int64_t n, std::vector<double>& a) {
  Tridiagonal t = Tridiagonalize(n, a.data());
  std::vector<double> q;
  FormTransformation(n, a.data(), t, q);
  QlIterate(n, t, q.data());
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t x, int64_t y) { return t.diagonal[x] > t.diagonal[y]; });
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) {
    values[i] = t.diagonal[order[i]];
    std::copy_n(q.begin() + order[i] * n, n, a.begin() + i * n);
  }
  return values;
}

}  // namespace lowkey
