// Readout linear and merged blocks, against the formulas in double.
#include <lapacke.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/attention/atp/host.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

using Matrix = std::vector<double>;  // row-major

// What the linear readout reads of a block, of one KV head: keys and values side by side.
struct Moments {
  double count = 0;
  Matrix mean;       // [2 d]
  Matrix principal;  // [rank, 2 d]
};

// The leading `rank` rows of U^T or of Sigma V^T of m [n, c].
struct Factors {
  Matrix left;   // [rank, n]
  Matrix right;  // [rank, c]
};
Factors Svd(Matrix m, int64_t n, int64_t c, int64_t rank) {
  const int64_t s = std::min(n, c);
  Matrix sigma(s), u(n * s), vt(s * c);
  EXPECT_EQ(LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'S', static_cast<int>(n), static_cast<int>(c),
                           m.data(), static_cast<int>(c), sigma.data(), u.data(),
                           static_cast<int>(s), vt.data(), static_cast<int>(c)),
            0);
  Factors out{Matrix(rank * n, 0.0), Matrix(rank * c, 0.0)};
  for (int64_t r = 0; r < std::min(rank, s); ++r) {
    for (int64_t i = 0; i < n; ++i) out.left[r * n + i] = u[i * s + r];
    for (int64_t j = 0; j < c; ++j) out.right[r * c + j] = sigma[r] * vt[r * c + j];
  }
  return out;
}

// One layer of rows, as the cache holds them.
class LinearReference {
 public:
  LinearReference(const AttentionRows& rows, const AtpOptions& options, int64_t rank)
      : rows_(rows), g_(rows.geometry), d_(g_.head_dim), options_(options), rank_(rank) {}

  std::vector<double> Attend(int64_t n_prompt) {
    std::vector<double> out(rows_.n_tokens * g_.n_heads * d_);
    for (int64_t i = 0; i < rows_.n_tokens; ++i) {
      int64_t far = std::max<int64_t>(0, i / options_.block_tokens - options_.window_blocks);
      if (options_.prefill == AtpPrefill::kExact && i < n_prompt) far = 0;
      for (int64_t head = 0; head < g_.n_heads; ++head) {
        const std::vector<Moments> blocks = FarBlocksOf(far, head / g_.group());
        AttendTo(blocks, i, head, far * options_.block_tokens, &out[(i * g_.n_heads + head) * d_]);
      }
    }
    return out;
  }

 private:
  double Cached(int64_t token, int64_t column) const {
    const float x = rows_.row(0, token)[g_.n_heads * d_ + column];
    return g_.cache_type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
  }
  double Key(int64_t token, int64_t head, int64_t j) const { return Cached(token, head * d_ + j); }
  double Value(int64_t token, int64_t head, int64_t j) const {
    return Cached(token, (g_.n_kv_heads + head) * d_ + j);
  }

  // Keys and values of one head around their means, [n, 2 d].
  Matrix Centerd(int64_t begin, int64_t end, int64_t head, Matrix& mean) const {
    const int64_t n = end - begin;
    Matrix out(n * 2 * d_);
    mean.assign(2 * d_, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d_; ++j) {
        out[i * 2 * d_ + j] = Key(begin + i, head, j);
        out[i * 2 * d_ + d_ + j] = Value(begin + i, head, j);
      }
      for (int64_t j = 0; j < 2 * d_; ++j) {
        mean[j] += out[i * 2 * d_ + j] / static_cast<double>(n);
      }
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] -= mean[i % (2 * d_)];
    return out;
  }

  // U^T [rank, n] of the layer's input.
  Matrix InputBasis(int64_t begin, int64_t end) const {
    const int64_t n = end - begin, c = g_.input_dim();
    const int64_t first = 2 * g_.n_kv_heads * d_;
    Matrix x(n * c);
    for (int64_t j = 0; j < c; ++j) {
      double mean = 0;
      for (int64_t i = 0; i < n; ++i) mean += Cached(begin + i, first + j) / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) x[i * c + j] = Cached(begin + i, first + j) - mean;
    }
    return Svd(x, n, c, rank_).left;
  }

  // U^T [rank, n] of the heads' keys and values, each scaled to unit norm.
  Matrix Basis(int64_t begin, int64_t end, std::vector<int64_t> heads) const {
    const int64_t n = end - begin, c = 2 * d_ * static_cast<int64_t>(heads.size());
    Matrix columns(n * c), mean;
    for (size_t h = 0; h < heads.size(); ++h) {
      const Matrix m = Centerd(begin, end, heads[h], mean);
      for (int64_t half : {0, 1}) {
        double energy = 0;
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < d_; ++j) energy += std::pow(m[(2 * i + half) * d_ + j], 2);
        }
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < d_; ++j) {
            columns[i * c + static_cast<int64_t>(2 * h + half) * d_ + j] =
                m[(2 * i + half) * d_ + j] / std::sqrt(energy);
          }
        }
      }
    }
    return Svd(columns, n, c, rank_).left;
  }

  Moments Block(int64_t number, int64_t head) const {
    const int64_t begin = std::max<int64_t>(number * options_.block_tokens, options_.sinks);
    const int64_t end = (number + 1) * options_.block_tokens;
    std::vector<int64_t> heads(g_.n_kv_heads);
    std::iota(heads.begin(), heads.end(), 0);
    if (options_.basis == AtpBasis::kKv) heads = {head};
    const Matrix left =
        options_.basis == AtpBasis::kInput ? InputBasis(begin, end) : Basis(begin, end, heads);
    Moments out{static_cast<double>(end - begin), {}, Matrix(rank_ * 2 * d_, 0.0)};
    const Matrix m = Centerd(begin, end, head, out.mean);
    for (int64_t r = 0; r < rank_; ++r) {
      for (int64_t i = 0; i < end - begin; ++i) {
        for (int64_t j = 0; j < 2 * d_; ++j) {
          out.principal[r * 2 * d_ + j] += left[r * (end - begin) + i] * m[i * 2 * d_ + j];
        }
      }
    }
    return out;
  }

  Moments Merge(const Moments& a, const Moments& b) const {
    Moments out{a.count + b.count, Matrix(2 * d_), {}};
    Matrix m = a.principal;
    m.insert(m.end(), b.principal.begin(), b.principal.end());
    for (int64_t j = 0; j < 2 * d_; ++j) {
      m.push_back(std::sqrt(a.count * b.count / out.count) * (a.mean[j] - b.mean[j]));
      out.mean[j] = (a.count * a.mean[j] + b.count * b.mean[j]) / out.count;
    }
    out.principal = Svd(m, 2 * rank_ + 1, 2 * d_, rank_).right;
    return out;
  }

  // A binary counter: while the newest two are made of as many blocks, they become one.
  const std::vector<Moments>& FarBlocksOf(int64_t far, int64_t head) {
    while (static_cast<int64_t>(counters_.size()) <= far * g_.n_kv_heads + head) {
      const auto at = static_cast<int64_t>(counters_.size());
      std::vector<Moments> now;
      if (at >= g_.n_kv_heads) {
        now = counters_[at - g_.n_kv_heads];
        int64_t number = at / g_.n_kv_heads - 1;
        now.push_back(Block(number, at % g_.n_kv_heads));
        for (; options_.merge && number % 2 == 1; number /= 2) {
          const Moments newest = now.back();
          now.pop_back();
          now.back() = Merge(now.back(), newest);
        }
      }
      counters_.push_back(std::move(now));
    }
    return counters_[far * g_.n_kv_heads + head];
  }

  void AttendTo(const std::vector<Moments>& blocks, int64_t row, int64_t head, int64_t near,
                double* out) const {
    const float* q = rows_.row(0, row) + head * d_;
    const double root = std::sqrt(static_cast<double>(d_));
    const int64_t kv_head = head / g_.group();
    struct Part {
      double log, mass;
      Matrix value;
    };
    std::vector<Part> parts;
    for (int64_t t = 0; t <= row; ++t) {
      if (t >= options_.sinks && t < near) continue;
      Part part{0, 1, Matrix(d_)};
      for (int64_t j = 0; j < d_; ++j) {
        part.log += q[j] * Key(t, kv_head, j) / root;
        part.value[j] = Value(t, kv_head, j);
      }
      parts.push_back(part);
    }
    for (const Moments& b : blocks) {
      Part part{0, b.count, Matrix(d_)};
      for (int64_t j = 0; j < d_; ++j) {
        part.log += q[j] * b.mean[j] / root;
        part.value[j] = b.count * b.mean[d_ + j];
      }
      for (int64_t r = 0; r < rank_; ++r) {
        double a = 0;
        for (int64_t j = 0; j < d_; ++j) a += q[j] * b.principal[r * 2 * d_ + j] / root;
        part.log += a * a / (2 * b.count);
        for (int64_t j = 0; j < d_; ++j) part.value[j] += a * b.principal[r * 2 * d_ + d_ + j];
      }
      parts.push_back(part);
    }
    double top = -HUGE_VAL, sum = 0;
    for (const Part& p : parts) top = std::max(top, p.log);
    std::fill_n(out, d_, 0.0);
    for (const Part& p : parts) {
      sum += std::exp(p.log - top) * p.mass;
      for (int64_t j = 0; j < d_; ++j) out[j] += std::exp(p.log - top) * p.value[j];
    }
    for (int64_t j = 0; j < d_; ++j) out[j] /= sum;
  }

  const AttentionRows& rows_;
  const AttentionGeometry g_;
  const int64_t d_;
  const AtpOptions options_;
  const int64_t rank_;
  std::vector<std::vector<Moments>> counters_;  // by number of far blocks and KV head
};

AtpOptions Linear(AtpBasis basis, int32_t rank, int32_t sinks, int32_t window_blocks) {
  AtpOptions o{RankFixed{rank}, basis, AtpPrefill::kCompressed, 64, sinks, window_blocks};
  o.readout = AtpReadout::kLinear;
  return o;
}

AtpOptions Merging(AtpOptions o) {
  o.merge = true;
  return o;
}

class AtpLinearTest : public testing::TestWithParam<StorageType> {
 protected:
  AttentionGeometry geometry() const { return {1, 4, 2, 16, std::nullopt, GetParam()}; }

  void ExpectMatchesReference(const AttentionRows& rows, const AtpOptions& o, int64_t n_prompt) {
    const int64_t rank = std::get<RankFixed>(o.rank).rank;
    const std::vector<float> out = RunSequence(rows, {Atp(o), int64_t{1} << 20, n_prompt});
    const double difference =
        MaxDifference(out.data(), LinearReference(rows, o, rank).Attend(n_prompt));
    EXPECT_LE(difference, GetParam() == StorageType::kFloat32 ? 2e-5 : 6e-2)
        << NameOf(o.basis) << ", rank " << rank << ", sinks " << o.sinks << ", window "
        << o.window_blocks << (o.merge ? ", merged" : "");
  }
};

INSTANTIATE_TEST_SUITE_P(Caches, AtpLinearTest,
                         testing::Values(StorageType::kFloat32, StorageType::kBFloat16),
                         [](const auto& info) {
                           return info.param == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(AtpLinearTest, MatchesTheReferenceWhereTheSpectrumHasAGap) {
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    for (int32_t sinks : {0, 4}) {
      const AtpOptions o = Linear(basis, 6, sinks, sinks == 0 ? 1 : 0);
      ExpectMatchesReference(FactorRows(geometry(), 300, GapAt(6), 1), o, 300);
    }
  }
}

TEST_P(AtpLinearTest, MatchesTheReferenceAsBlocksMerge) {
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    for (int32_t window : {0, 1}) {
      const AtpOptions o = Merging(Linear(basis, 6, 4, window));
      ExpectMatchesReference(FactorRows(geometry(), 600, GapAt(6), 2), o, 600);
    }
  }
}

TEST_P(AtpLinearTest, MatchesTheReferenceBeyondAnExactPrompt) {
  AtpOptions o = Merging(Linear(AtpBasis::kLayer, 6, 4, 1));
  o.prefill = AtpPrefill::kExact;
  for (int64_t n_prompt : {1, 150, 449}) {
    ExpectMatchesReference(FactorRows(geometry(), 450, GapAt(6), 3), o, n_prompt);
  }
}

TEST_P(AtpLinearTest, MatchesTheReferenceAtOddHeads) {
  const AttentionGeometry g{1, 9, 3, 20, std::nullopt, GetParam()};
  const AtpOptions o = Merging(Linear(AtpBasis::kLayer, 5, 3, 0));
  ExpectMatchesReference(FactorRows(g, 280, GapAt(5), 4), o, 280);
}

// Moments are all that is read, and merging at full rank loses none.
TEST_P(AtpLinearTest, MergedAtFullRankFourBlocksReadLikeOneOfTheirLength) {
  const AttentionRows rows = RandomRows(geometry(), 320, 5);
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
    AtpOptions o = Linear(basis, 64, 4, 0);
    const std::vector<float> merged = RunSequence(rows, {Atp(Merging(o))});
    o.block_tokens = 256;
    const std::vector<float> one = RunSequence(rows, {Atp(o)});
    const int64_t from = 256 * 64;
    EXPECT_LE(MaxDifference(merged.data() + from, {one.begin() + from, one.end()}),
              GetParam() == StorageType::kFloat32 ? 2e-5 : 4e-2);
  }
}

// Such keys and values are what the readout is made for: only a block's length is not enough.
TEST_P(AtpLinearTest, IsNearStandardWhereKeysAndValuesAreNormal) {
  const AttentionRows rows = RandomRows(geometry(), 2100, 6);
  const std::vector<double> standard = ReferenceStandard(rows, 0);
  AtpOptions o = Linear(AtpBasis::kKv, 32, 4, 0);
  o.block_tokens = 1024;
  const std::vector<float> out = RunSequence(rows, {Atp(o)});
  double error = 0, size = 0;
  for (size_t i = out.size() / 2; i < out.size(); ++i) {
    error += std::fabs(out[i] - standard[i]);
    size += std::fabs(standard[i]);
  }
  EXPECT_LT(error, 0.5 * size);
}

TEST_P(AtpLinearTest, MergedBlocksGoWhenAnotherStandsForThem) {
  const AttentionRows rows = RandomRows(geometry(), 1100, 7);
  for (int32_t window : {0, 2}) {
    MechanismRunner runner(rows.geometry, Mechanism::kAtp);
    SequenceCache sequence = NewSequence(Atp(Merging(Linear(AtpBasis::kKv, 4, 0, window))), 1100);
    std::vector<float> out;
    while (sequence.n_tokens < 1100) {
      ASSERT_TRUE(runner.Step({{&sequence, &rows, 20, &out}}).ok());
      const int64_t n_closed = sequence.n_tokens / 64;
      const int64_t n_far = std::max<int64_t>(0, n_closed - window);
      const auto& blocks = sequence.state.As<AtpState>().blocks;
      const auto n_held =
          static_cast<int64_t>(blocks.size()) - std::count(blocks.begin(), blocks.end(), nullptr);
      EXPECT_EQ(n_held, std::popcount(static_cast<uint64_t>(n_far)) + n_closed - n_far);
    }
  }
}

// As measurements do that generate at one length of many.
TEST_P(AtpLinearTest, ForkMayEndItsPromptEarlier) {
  const AttentionRows rows = RandomRows(geometry(), 330, 8);
  AtpOptions o = Merging(Linear(AtpBasis::kKv, 8, 4, 1));
  o.prefill = AtpPrefill::kExact;
  MechanismRunner runner(rows.geometry, Mechanism::kAtp);
  SequenceCache sequence = NewSequence(Atp(o), 1000), fork;
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 320, &out}}).ok());
  fork = sequence;
  fork.n_prompt_tokens = 320;
  ASSERT_TRUE(runner.Step({{&fork, &rows, 10, &out}}).ok());
  EXPECT_TRUE(SameBits(out, RunSequence(rows, {Atp(o), int64_t{1} << 20, int64_t{320}})));
}

// What twice the length costs, in multiply-adds of a generated token and of a prompt.
TEST(AtpWork, MergedBlocksGrowWithTheLogarithmOfTheLength) {
  MechanismRunner runner({12, 12, 12, 64, std::nullopt, {}}, Mechanism::kAtp);
  const auto growth = [&](const AtpOptions& o) {
    const AttentionWork half = runner.mechanism().Work(Atp(o), 1 << 14);
    const AttentionWork whole = runner.mechanism().Work(Atp(o), 1 << 15);
    return std::pair(whole.decode / half.decode, whole.prefill / half.prefill);
  };
  AtpOptions exact = Linear(AtpBasis::kLayer, 16, 4, 0);
  exact.readout = AtpReadout::kExact;
  EXPECT_GT(growth(exact).first, 1.9);
  EXPECT_GT(growth(exact).second, 3);
  const AtpOptions linear = Linear(AtpBasis::kLayer, 16, 4, 0);
  EXPECT_GT(growth(linear).first, 1.9);
  EXPECT_LT(growth(Merging(linear)).first, 1.2);
  EXPECT_LT(growth(Merging(linear)).second, 2.2);
}

}  // namespace
}  // namespace lowkey
