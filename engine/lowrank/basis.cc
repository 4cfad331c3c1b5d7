#include "engine/lowrank/basis.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "engine/base/status_macros.h"
#include "engine/lowrank/matmul.h"
#include "engine/lowrank/symmetric_eigen.h"

namespace lowkey {
namespace {

// Singular values below this share of the largest are rounding of the Gram matrix.
constexpr float kNegligible = 1e-6f;

constexpr uint32_t kInfinityBits = 0x7f800000u;

// Returns the bits of the largest magnitude; kInfinityBits or more when an entry is not finite.
uint32_t LargestBits(const MatrixView& m) {
  uint32_t largest = 0;  // magnitudes of floats order like their bits
  for (int64_t i = 0; i < m.n_rows; ++i) {
    const float* row = m.data + i * m.stride;
    for (int64_t j = 0; j < m.n_cols; ++j) {
      largest = std::max(largest, std::bit_cast<uint32_t>(row[j]) & 0x7fffffffu);
    }
  }
  return largest;
}

bool IsFinite(const MatrixView& m) { return LargestBits(m) < kInfinityBits; }

// Returns the exponent e with 2^(e-1) <= max|m| < 2^e; nullopt when m has a non-finite entry or is
// all zero.
std::optional<int> Exponent(const MatrixView& m) {
  const uint32_t largest = LargestBits(m);
  if (largest == 0 || largest >= kInfinityBits) return std::nullopt;
  int exponent = 0;
  std::frexp(std::bit_cast<float>(largest), &exponent);
  return exponent;
}

// Writes m * 2^-exponent to out [n_rows, n_cols], contiguous, in two factors: 2^149 is no float.
void CopyScaled(const MatrixView& m, int exponent, std::vector<float>& out) {
  out.resize(m.n_rows * m.n_cols);
  const float first = std::ldexp(1.0f, -exponent / 2);
  const float second = std::ldexp(1.0f, -exponent - -exponent / 2);
  for (int64_t i = 0; i < m.n_rows; ++i) {
    const float* row = m.data + i * m.stride;
    float* to = out.data() + i * m.n_cols;
    for (int64_t j = 0; j < m.n_cols; ++j) to[j] = row[j] * first * second;
  }
}

// Writes basis rows [n_found, n] as u [n, rank]; columns past n_found are zero.
void WriteColumns(const float* rows, int64_t n_found, int64_t n, int64_t rank, float* u) {
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < n; i0 += kTile) {
    for (int64_t j0 = 0; j0 < rank; j0 += kTile) {
      for (int64_t i = i0; i < std::min(i0 + kTile, n); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTile, rank); ++j) {
          u[i * rank + j] = j < n_found ? rows[j * n + i] : 0.0f;
        }
      }
    }
  }
}

// Orthonormalizes m's own columns.
void SpanColumns(const MatrixView& m, int64_t rank, BasisWorkspace& w, float* u) {
  w.left.resize(m.n_cols * m.n_rows);
  for (int64_t j = 0; j < m.n_cols; ++j) {
    // Each column at its own scale: a small one spans as much as a large one.
    const MatrixView column{m.data + j, m.n_rows, 1, m.stride};
    float* row = w.left.data() + j * m.n_rows;
    if (const std::optional<int> exponent = Exponent(column)) {
      CopyScaled(column, *exponent, w.scaled);
      std::copy_n(w.scaled.data(), m.n_rows, row);
    } else {
      std::fill_n(row, m.n_rows, 0.0f);
    }
  }
  OrthonormalizeRows(m.n_cols, m.n_rows, w.left.data(), w.subspace.orthonormalize);
  WriteColumns(w.left.data(), m.n_cols, m.n_rows, rank, u);
}

// Forms w.gram [size, size]: the products of w.scaled's rows (wide m) or columns (tall m).
void FormGram(const MatrixView& m, int64_t size, BasisWorkspace& w) {
  w.gram.resize(size * size);
  const MatmulOperand plain{w.scaled.data(), m.n_cols, 1};
  const MatmulOperand turned{w.scaled.data(), 1, m.n_cols};
  const bool wide = size == m.n_rows;
  Matmul({size, size, wide ? m.n_cols : m.n_rows}, wide ? plain : turned, wide ? turned : plain,
         {.lower_only = true}, {w.gram.data(), size}, w.subspace.orthonormalize.pack);
  MirrorLower(size, w.gram.data());
}

// Maps n_rows right singular vectors in w.subspace.basis to left ones in w.left.
void MapToLeft(const MatrixView& m, int64_t n_rows, BasisWorkspace& w) {
  w.left.resize(n_rows * m.n_rows);
  Matmul({n_rows, m.n_rows, m.n_cols}, {w.subspace.basis.data(), m.n_cols, 1},
         {w.scaled.data(), 1, m.n_cols}, {}, {w.left.data(), m.n_rows},
         w.subspace.orthonormalize.pack);
  float largest = 0.0f;
  for (int64_t i = 0; i < n_rows; ++i) {
    float* row = w.left.data() + i * m.n_rows;
    float sum = 0.0f;
    for (int64_t j = 0; j < m.n_rows; ++j) sum += row[j] * row[j];
    const float sigma = std::sqrt(sum);
    largest = std::max(largest, sigma);
    if (sigma < kNegligible * largest) std::fill_n(row, m.n_rows, 0.0f);
  }
  OrthonormalizeRows(n_rows, m.n_rows, w.left.data(), w.subspace.orthonormalize);
}

// Returns the smaller side's Gram matrix in double, both triangles.
std::vector<double> GramInDouble(const MatrixView& m) {
  constexpr int64_t kChunk = 32;  // a row of the result stays in cache for this many products
  const bool wide = m.n_rows <= m.n_cols;
  const int64_t size = wide ? m.n_rows : m.n_cols;
  const int64_t length = wide ? m.n_cols : m.n_rows;
  std::vector<double> gram(size * size), x(kChunk * size);
  for (int64_t k0 = 0; k0 < length; k0 += kChunk) {
    const int64_t n = std::min(kChunk, length - k0);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        const int64_t row = wide ? i : k0 + k, col = wide ? k0 + k : i;
        x[k * size + i] = m.data[row * m.stride + col];
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        const double a = x[k * size + i];
        for (int64_t j = 0; j <= i; ++j) gram[i * size + j] += a * x[k * size + j];
      }
    }
  }
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < i; ++j) gram[j * size + i] = gram[i * size + j];
  }
  return gram;
}

double Energy(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// Returns how many of the first rows of `products` = U^T m have `share` of |m|^2, at least 1; one
// more than there are rows where all of them do not suffice.
int64_t LeastRank(const std::vector<float>& products, const MatrixView& m, double share) {
  double total = 0, kept = 0;
  for (int64_t i = 0; i < m.n_rows; ++i) total += Energy(m.data + i * m.stride, m.n_cols);
  const int64_t n = static_cast<int64_t>(products.size()) / m.n_cols;
  for (int64_t i = 0; i < n; ++i) {
    kept += Energy(products.data() + i * m.n_cols, m.n_cols);
    if (!(kept < share * total)) return i + 1;
  }
  return n + 1;
}

// Keeps the first `to` columns of u [n_rows, from].
void KeepColumns(int64_t n_rows, int64_t from, int64_t to, std::vector<float>& u) {
  for (int64_t i = 0; i < n_rows; ++i) {
    std::copy_n(u.data() + i * from, to, u.data() + i * to);
  }
  u.resize(n_rows * to);
}

}  // namespace

void PrincipalBasis(const MatrixView& m, int64_t rank, BasisWorkspace& workspace, float* u) {
  LK_CHECK(rank >= 1 && rank <= m.n_rows && m.n_cols >= 1);
  std::fill_n(u, m.n_rows * rank, 0.0f);
  if (rank == m.n_rows) {
    if (!IsFinite(m)) return;
    for (int64_t i = 0; i < rank; ++i) u[i * rank + i] = 1.0f;
    return;
  }
  const std::optional<int> exponent = Exponent(m);
  if (!exponent.has_value()) return;
  if (rank >= m.n_cols) return SpanColumns(m, rank, workspace, u);

  CopyScaled(m, *exponent, workspace.scaled);
  const int64_t size = std::min(m.n_rows, m.n_cols);
  FormGram(m, size, workspace);
  const int64_t n_found =
      LeadingEigenvectors(size, workspace.gram.data(), rank, workspace.subspace);
  const float* rows = workspace.subspace.basis.data();
  if (size != m.n_rows) {
    MapToLeft(m, n_found, workspace);
    rows = workspace.left.data();
  }
  WriteColumns(rows, n_found, m.n_rows, rank, u);
}

int64_t EnergyBasis(const MatrixView& m, double share, BasisWorkspace& w, std::vector<float>& u) {
  constexpr int64_t kFirst = 16;
  constexpr double kSlack = 1e-6;  // rounding of fp32 sums
  const int64_t full = std::min(m.n_rows, m.n_cols);
  std::vector<float> products, pack;
  for (int64_t rank = std::min(kFirst, full);;) {
    u.resize(m.n_rows * rank);
    PrincipalBasis(m, rank, w, u.data());
    products.resize(rank * m.n_cols);
    Matmul({rank, m.n_cols, m.n_rows}, {u.data(), 1, rank}, {m.data, m.stride, 1}, {},
           {products.data(), m.n_cols}, pack);
    const int64_t enough = LeastRank(products, m, share - kSlack);
    if (enough <= rank || rank == full) {
      KeepColumns(m.n_rows, rank, std::min(enough, rank), u);
      return std::min(enough, rank);
    }
    // At full rank the columns have no order: one less is tried before.
    rank = rank < full - 1 ? std::min(2 * rank, full - 1) : full;
  }
}

std::vector<double> SingularValues(const MatrixView& m) {
  const int64_t size = std::min(m.n_rows, m.n_cols);
  if (size == 0 || !IsFinite(m)) return std::vector<double>(size, 0.0);
  std::vector<double> gram = GramInDouble(m);
  std::vector<double> values = SymmetricEigenvalues(size, gram);
  for (double& value : values) value = std::sqrt(std::max(value, 0.0));
  return values;
}

int64_t SvdEntropyRank(absl::Span<const double> sigma) {
  double largest = 0.0, sum = 0.0, squares = 0.0;
  for (double s : sigma) largest = std::max(largest, s);
  if (!(largest > 0.0) || !std::isfinite(largest)) return 0;
  for (double s : sigma) {
    sum += s / largest;
    squares += (s / largest) * (s / largest);
  }
  // 2^mu = 1 / sum p^2. The slack keeps equal singular values from counting one too many.
  return static_cast<int64_t>(std::ceil(sum * sum / squares - 1e-9));
}

}  // namespace lowkey
