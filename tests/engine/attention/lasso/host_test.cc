// Lasso attention against ADMM in double (attention_reference.py: lasso_admm).
#include "engine/attention/lasso/host.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 90;

// The inverse of a symmetric positive definite matrix, by Gauss-Jordan.
std::vector<double> Inverse(std::vector<double> a, int64_t d) {
  std::vector<double> inverse(d * d, 0.0);
  for (int64_t i = 0; i < d; ++i) inverse[i * d + i] = 1;
  for (int64_t p = 0; p < d; ++p) {
    const double pivot = a[p * d + p];
    for (int64_t j = 0; j < d; ++j) {
      a[p * d + j] /= pivot;
      inverse[p * d + j] /= pivot;
    }
    for (int64_t i = 0; i < d; ++i) {
      const double factor = a[i * d + p];
      if (i == p) continue;
      for (int64_t j = 0; j < d; ++j) {
        a[i * d + j] -= factor * a[p * d + j];
        inverse[i * d + j] -= factor * inverse[p * d + j];
      }
    }
  }
  return inverse;
}

// One head's output of row i, from rows t [.., d]: the formulas, with the projector of Eq. 3a or 4.
std::vector<double> Row(const std::vector<double>& t, int64_t i, int64_t d, const LassoOptions& o) {
  std::vector<double> gram(d * d, 0.0);
  for (int64_t s = 0; s < i; ++s) {
    for (int64_t a = 0; a < d; ++a) {
      for (int64_t b = 0; b < d; ++b) gram[a * d + b] += t[s * d + a] * t[s * d + b];
    }
  }
  std::vector<double> shifted = gram;
  for (int64_t a = 0; a < d; ++a) shifted[a * d + a] += o.rho;
  std::vector<double> divisor = shifted;
  if (o.form == LassoForm::kEfficient) {
    std::fill(divisor.begin(), divisor.end(), 0.0);
    for (int64_t a = 0; a < d; ++a) {
      for (int64_t b = 0; b < d; ++b) {
        for (int64_t c = 0; c < d; ++c) divisor[a * d + b] += gram[a * d + c] * shifted[c * d + b];
      }
    }
  }
  const std::vector<double> inner = Inverse(divisor, d);
  std::vector<double> b0(i, 0.0), z(i, 0.0), w(i, 0.0), c(i, 0.0);
  for (int64_t s = 0; s < i; ++s) {
    for (int64_t j = 0; j < d; ++j) b0[s] += t[s * d + j] * t[i * d + j];
  }
  for (int32_t step = 0; step < o.iterations; ++step) {
    std::vector<double> sums(d, 0.0), u(d, 0.0);
    for (int64_t s = 0; s < i; ++s) {
      for (int64_t j = 0; j < d; ++j) sums[j] += (b0[s] + o.rho * (z[s] - w[s])) * t[s * d + j];
    }
    for (int64_t a = 0; a < d; ++a) {
      for (int64_t j = 0; j < d; ++j) u[a] += inner[a * d + j] * sums[j];
    }
    for (int64_t s = 0; s < i; ++s) {
      double y = 0;
      for (int64_t j = 0; j < d; ++j) y += t[s * d + j] * u[j];
      const double b = b0[s] + o.rho * (z[s] - w[s]);
      c[s] = std::clamp<double>(o.form == LassoForm::kVanilla ? (b - y) / o.rho : y, -o.clamp,
                                o.clamp);
    }
    for (int64_t s = 0; s < i; ++s) {
      const double sum = c[s] + w[s];
      z[s] = std::copysign(std::max(std::fabs(sum) - o.lambda / o.rho, 0.0), sum);
      w[s] += c[s] - z[s];
    }
  }
  std::vector<double> out(d, 0.0);
  double total = 0;
  for (int64_t s = 0; s < i; ++s) total += std::pow(std::fabs(c[s]), o.power);
  for (int64_t s = 0; s < i && total > 0; ++s) {
    const double weight = std::copysign(std::pow(std::fabs(c[s]), o.power), c[s]) / total;
    for (int64_t j = 0; j < d; ++j) out[j] += weight * t[s * d + j];
  }
  return out;
}

// Rows from `first` on: before them Eq. 4's matrix has no inverse to compare with.
void ExpectEqualsReference(const LassoOptions& lasso, int64_t first) {
  const AttentionGeometry g{1, 2, 2, 16, std::nullopt, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, kTokens, 9);
  MechanismWeights weights;
  weights.lasso = lasso;
  MechanismRunner runner(g, Mechanism::kLasso, weights);
  AttentionOptions options;
  options.mechanism = Mechanism::kLasso;
  SequenceCache sequence = NewSequence(options, kTokens);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, kTokens, &out}}).ok());
  for (int64_t head = 0; head < 2; ++head) {
    std::vector<double> t;
    for (int64_t i = 0; i < kTokens; ++i) {
      const float* x = rows.row(0, i) + (g.n_heads + 2 * g.n_kv_heads + head) * 16;
      t.insert(t.end(), x, x + 16);
    }
    for (int64_t i = first; i < kTokens; ++i) {
      EXPECT_LE(MaxDifference(out.data() + (i * 2 + head) * 16, Row(t, i, 16, lasso)), 2e-4)
          << "row " << i;
    }
  }
}

TEST(LassoAttention, VanillaFormEqualsAdmmInDouble) {
  LassoOptions lasso;
  lasso.form = LassoForm::kVanilla;
  lasso.rho = 2.0f;
  ExpectEqualsReference(lasso, 1);
}

TEST(LassoAttention, EfficientFormEqualsAdmmInDouble) {
  LassoOptions lasso;
  lasso.iterations = 5;
  ExpectEqualsReference(lasso, 24);
}

TEST(LassoAttention, FirstRowHasNoSourcesUnlessSomeAreFixed) {
  const AttentionGeometry g{1, 1, 1, 8, std::nullopt, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, 1, 2);
  for (int32_t extra_tokens : {0, 40}) {
    MechanismWeights weights;
    weights.lasso.extra_tokens = extra_tokens;
    MechanismRunner runner(g, Mechanism::kLasso, weights);
    AttentionOptions options;
    options.mechanism = Mechanism::kLasso;
    SequenceCache sequence = NewSequence(options, 1);
    std::vector<float> out;
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
    const bool silent = std::all_of(out.begin(), out.end(), [](float x) { return x == 0; });
    EXPECT_EQ(silent, extra_tokens == 0);
  }
}

TEST(LassoAttention, SlidingWindowIsRefused) {
  const AttentionGeometry g{1, 1, 1, 8, 16, StorageType::kFloat32};
  MechanismRunner runner(g, Mechanism::kLasso);
  EXPECT_EQ(runner.mechanism().CheckAvailable({}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lowkey
