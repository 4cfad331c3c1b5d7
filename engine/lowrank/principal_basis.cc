#include "engine/lowrank/principal_basis.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/kernels.h"
#include "engine/lowrank/symmetric_eigen.h"

namespace lowkey {
namespace {

constexpr int64_t kMaxGroupDim = 512;
constexpr double kLeastEigenvalue = 1e-6;  // of the largest

bool IsFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// A symmetric block of B and its inverse, for the numbers [first, first + dim) of x.
struct HeadBlock {
  int64_t first = 0, dim = 0;
  std::vector<double> matrix, inverse;  // [dim][dim]
};

// The square root of E[q q'] / key_dim and its inverse.
HeadBlock KeyBlock(int64_t first, const Moments& queries) {
  const int64_t dim = queries.dim();
  HeadBlock block{first, dim, std::vector<double>(dim * dim), std::vector<double>(dim * dim)};
  std::vector<double> vectors = queries.SecondMoment();
  for (double& v : vectors) v /= static_cast<double>(dim);
  std::vector<double> values = SymmetricEigenvectors(dim, vectors);
  // Without queries all errors of the key count alike.
  const double largest = values[0] > 0 ? values[0] : 1;
  if (!(values[0] > 0)) std::fill(values.begin(), values.end(), largest);
  for (int64_t e = 0; e < dim; ++e) {
    const double root = std::sqrt(std::max(values[e], kLeastEigenvalue * largest));
    const double* v = &vectors[e * dim];
    for (int64_t i = 0; i < dim; ++i) {
      Kernels().add_scaled_f64(root * v[i], v, &block.matrix[i * dim], dim);
      Kernels().add_scaled_f64(v[i] / root, v, &block.inverse[i * dim], dim);
    }
  }
  return block;
}

// The identity over the root of the values' variance, and its inverse.
HeadBlock ValueBlock(int64_t first, int64_t dim, const std::vector<double>& covariance,
                     int64_t x_dim) {
  HeadBlock block{first, dim, std::vector<double>(dim * dim), std::vector<double>(dim * dim)};
  double variance = 0;
  for (int64_t i = 0; i < dim; ++i) variance += covariance[(first + i) * (x_dim + 1)];
  const double root = variance > 0 ? std::sqrt(variance) : 1;
  for (int64_t i = 0; i < dim; ++i) {
    block.matrix[i * (dim + 1)] = 1 / root;
    block.inverse[i * (dim + 1)] = root;
  }
  return block;
}

// Returns a [n_rows][dim] times the symmetric block-diagonal matrix of `part`'s matrices.
std::vector<double> TimesBlocks(const std::vector<double>& a, int64_t dim,
                                const std::vector<HeadBlock>& blocks,
                                std::vector<double> HeadBlock::*part) {
  std::vector<double> out(a.size());
  const auto n_rows = static_cast<int64_t>(a.size()) / dim;
  for (const HeadBlock& block : blocks) {
    const std::vector<double>& matrix = block.*part;
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t i = 0; i < block.dim; ++i) {
        Kernels().add_scaled_f64(a[r * dim + block.first + i], &matrix[i * block.dim],
                                 &out[r * dim + block.first], block.dim);
      }
    }
  }
  return out;
}

void Transpose(int64_t dim, std::vector<double>& a) {
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < i; ++j) std::swap(a[i * dim + j], a[j * dim + i]);
  }
}

std::vector<uint16_t> Narrowed(const std::vector<double>& from) {
  std::vector<uint16_t> to(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = ToBFloat16(static_cast<float>(from[i])).bits;
  return to;
}

}  // namespace

int64_t HeadsPerGroup(int64_t n_kv_heads, int64_t key_dim, int64_t value_dim) {
  int64_t most = 1;
  for (int64_t n = 1; n <= n_kv_heads; ++n) {
    if (n_kv_heads % n == 0 && n * (key_dim + value_dim) <= kMaxGroupDim) most = n;
  }
  return most;
}

absl::StatusOr<PrincipalCode> FindPrincipalCode(const HeadGroup& group, const Moments& x,
                                                absl::Span<const Moments> queries) {
  LK_CHECK(x.dim() == group.dim());
  return FindPrincipalCode(group, VectorStatistics{x.n_rows(), x.Mean(), x.Covariance()}, queries);
}

absl::StatusOr<PrincipalCode> FindPrincipalCode(const HeadGroup& group, const VectorStatistics& x,
                                                absl::Span<const Moments> queries) {
  const int64_t dim = group.dim();
  const int64_t n_key_heads = group.key_dim > 0 ? group.n_heads : 0;
  LK_CHECK(static_cast<int64_t>(queries.size()) == n_key_heads);
  if (x.n_rows < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("calibration: ", x.n_rows, " tokens, expected at least 2"));
  }
  const std::vector<double>&covariance = x.covariance, &mean = x.mean;
  bool is_finite = IsFinite(covariance) && IsFinite(mean);
  for (const Moments& q : queries) is_finite = is_finite && IsFinite(q.SecondMoment());
  if (!is_finite) {
    return absl::FailedPreconditionError("calibration: keys, values or queries are not finite");
  }
  std::vector<HeadBlock> blocks;
  for (int64_t h = 0; h < n_key_heads; ++h) {
    blocks.push_back(KeyBlock(h * group.key_dim, queries[h]));
  }
  for (int64_t h = 0; h < group.n_heads; ++h) {
    const int64_t first = group.n_heads * group.key_dim + h * group.value_dim;
    blocks.push_back(ValueBlock(first, group.value_dim, covariance, dim));
  }
  // B Sigma B: B is symmetric, so that both sides are products with rows.
  std::vector<double> weighted = TimesBlocks(covariance, dim, blocks, &HeadBlock::matrix);
  Transpose(dim, weighted);
  weighted = TimesBlocks(weighted, dim, blocks, &HeadBlock::matrix);
  for (int64_t i = 0; i < dim; ++i) {  // rounding must not leave it asymmetric
    for (int64_t j = 0; j < i; ++j) weighted[j * dim + i] = weighted[i * dim + j];
  }
  const std::vector<double> variances = SymmetricEigenvectors(dim, weighted);
  PrincipalCode code;
  code.dim = dim;
  for (int64_t i = 0; i < dim; ++i) {
    code.mean.push_back(static_cast<float>(mean[i]));
    code.variances.push_back(static_cast<float>(std::max(variances[i], 0.0)));
  }
  // F = U' B has rows u' B; G = B^-1 U is the transpose of the rows u' B^-1.
  code.encode = Narrowed(TimesBlocks(weighted, dim, blocks, &HeadBlock::matrix));
  std::vector<double> decode = TimesBlocks(weighted, dim, blocks, &HeadBlock::inverse);
  Transpose(dim, decode);
  code.decode = Narrowed(decode);
  return code;
}

}  // namespace lowkey
