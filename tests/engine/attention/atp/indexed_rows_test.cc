#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/attention/atp/policy.h"
#include "engine/attention/atp/token_index.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 300, kPrompt = 260, kBlock = 64, kDim = 8;
constexpr AttentionGeometry kGeometry{1, 4, 2, kDim, std::nullopt, StorageType::kFloat32};

AtpOptions Calibrated(int32_t sinks, int32_t refine_tokens) {
  AtpOptions options;
  options.basis = AtpBasis::kCalibrated;
  options.block_tokens = kBlock;
  options.window_blocks = 1;
  options.sinks = sinks;
  options.refine_tokens = refine_tokens;
  return options;
}

// What the last row reads, in double: tokens before the window from the index, but for the chosen
// ones, and all others exactly. [n_heads][kDim].
class Reference {
 public:
  Reference(const AttentionRows& rows, const AtpOptions& options) : rows_(rows), options_(options) {
    // Blocks up to the window are far; the row's own is the last.
    n_far_ = ((kTokens - 1) / kBlock - options.window_blocks) * kBlock;
    for (int64_t h = 0; h < kGeometry.n_kv_heads; ++h) AddHead(h);
  }
  const std::vector<double>& out() const { return out_; }

 private:
  const float* Key(int64_t token, int64_t head) const {
    return rows_.row(0, token) + kGeometry.q_dim() + head * kDim;
  }
  const float* Value(int64_t token, int64_t head) const {
    return rows_.row(0, token) + kGeometry.q_dim() + kGeometry.k_dim() + head * kDim;
  }

  // Fills the far tokens' keys and values as the index gives them back.
  void Decode(int64_t head) {
    coded_.assign(n_far_ * 2 * kDim, 0);
    PrincipalScratch scratch;
    std::vector<std::byte> page(TokenIndex::PageBytes(kGeometry));
    std::vector<float> columns(2 * kDim * kPageTokens), levels(kDim * kPageTokens);
    for (int64_t first = 0; first < n_far_; first += kPageTokens) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        for (int64_t j = 0; j < kDim; ++j) {
          columns[j * kPageTokens + t] = Key(first + t, head)[j];
          columns[(kDim + j) * kPageTokens + t] = Value(first + t, head)[j];
        }
      }
      index_.Encode(0, head, columns.data(), columns.data() + kDim * kPageTokens, scratch,
                    page.data());
      float gains[kPageTokens];
      index_.DecodeKeys(0, head, page.data(), levels.data(), gains);
      Restore(index_.keys(0, head), levels, gains, first, 0);
      index_.DecodeValues(0, head, page.data(), levels.data(), gains);
      Restore(index_.values(0, head), levels, gains, first, kDim);
    }
  }
  void Restore(const TokenIndex::Half& half, const std::vector<float>& levels, const float* gains,
               int64_t first, int64_t at) {
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t i = 0; i < kDim; ++i) {
        double& x = coded_[(first + t) * 2 * kDim + at + i];
        x = half.mean()[i];
        for (int64_t j = 0; j < half.n(); ++j) {
          x += static_cast<double>(gains[t]) * levels[j * kPageTokens + t] *
               half.rows[j * half.width + i];
        }
      }
    }
  }

  void AddHead(int64_t head) {
    Decode(head);
    const int64_t group = kGeometry.group();
    const float* q = rows_.row(0, kTokens - 1) + head * group * kDim;
    std::vector<std::vector<double>> scores(group, std::vector<double>(kTokens));
    const auto score = [&](int64_t g, int64_t token, bool is_coded) {
      double sum = 0;
      for (int64_t j = 0; j < kDim; ++j) {
        sum += q[g * kDim + j] * (is_coded ? coded_[token * 2 * kDim + j] : Key(token, head)[j]);
      }
      return sum / std::sqrt(static_cast<double>(kDim));
    };
    const auto is_far = [&](int64_t t) { return t >= options_.sinks && t < n_far_; };
    std::vector<double> shares(kTokens);
    for (int64_t g = 0; g < group; ++g) {
      double sum = 0;
      for (int64_t t = 0; t < kTokens; ++t) sum += std::exp(scores[g][t] = score(g, t, is_far(t)));
      for (int64_t t = 0; t < kTokens; ++t) {
        if (is_far(t)) shares[t] += std::exp(scores[g][t]) / sum;
      }
    }
    std::vector<int64_t> order(kTokens);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return shares[a] > shares[b]; });
    std::vector<bool> is_whole(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) is_whole[t] = !is_far(t);
    for (int32_t i = 0; i < options_.refine_tokens; ++i) is_whole[order[i]] = true;
    for (int64_t g = 0; g < group; ++g) {
      double sum = 0;
      std::vector<double> out(kDim);
      for (int64_t t = 0; t < kTokens; ++t) {
        const double weight = std::exp(score(g, t, !is_whole[t]));
        sum += weight;
        for (int64_t j = 0; j < kDim; ++j) {
          out[j] += weight * (is_whole[t] ? Value(t, head)[j] : coded_[(t * 2 + 1) * kDim + j]);
        }
      }
      for (const double x : out) out_.push_back(x / sum);
    }
  }

  const AttentionRows& rows_;
  const AtpOptions options_;
  const PrincipalCodes codes_ = TestCodes(kGeometry);
  const TokenIndex index_{kGeometry, codes_.heads};
  int64_t n_far_ = 0;
  std::vector<double> coded_;  // [n_far][key, value]
  std::vector<double> out_;
};

double ErrorOf(const AttentionRows& rows, const AtpOptions& options) {
  const std::vector<float> out = RunSequence(
      rows, {.attention = Atp(options), .chunk_tokens = 100, .n_prompt_tokens = kPrompt});
  const float* last = out.data() + (kTokens - 1) * kGeometry.out_dim();
  return MaxDifference(last, Reference(rows, options).out());
}

TEST(IndexedRows, ReadWhatTheFormulaReads) {
  const AttentionRows rows = RandomRows(kGeometry, kTokens, 3);
  for (const int32_t sinks : {0, 5}) {
    for (const int32_t refine_tokens : {0, 1, 17, 60}) {
      EXPECT_LT(ErrorOf(rows, Calibrated(sinks, refine_tokens)), 2e-5)
          << sinks << ", " << refine_tokens;
    }
  }
}

TEST(IndexedRows, RefiningEveryFarTokenReadsWhatStandardReads) {
  const AttentionRows rows = RandomRows(kGeometry, kTokens, 4);
  const std::vector<double> standard = ReferenceStandard(rows, 0);
  AtpOptions options = Calibrated(4, 4096);
  options.prefill = AtpPrefill::kCompressed;
  const auto error = [&] {
    const std::vector<float> out = RunSequence(rows, {.attention = Atp(options)});
    return MaxDifference(out.data(), standard);
  };
  EXPECT_LT(error(), 1e-5);
  options.kept_storage = AtpStorage::kInt8;
  EXPECT_LT(error(), 0.02);
  options.kept_storage = AtpStorage::kInt4;
  EXPECT_LT(error(), 0.3);
  EXPECT_GT(error(), 0.001);
}

TEST(IndexedRows, NeedACalibration) {
  ThreadPool pool(1);
  const auto cache = Cache::Create(1 << 20, PageBytes(kGeometry)).value();
  const AttentionContext context{kGeometry, cache.get(), &pool};
  const auto mechanism = MakeMechanism(Mechanism::kAtp, context);
  EXPECT_TRUE(mechanism->CheckAvailable(Atp({})).ok());
  const absl::Status status = mechanism->CheckAvailable(Atp(Calibrated(4, 16)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no calibration"), std::string::npos) << status;
}

// A block of 64 tokens takes two dozen bytes a token and head, with 4 bits for each number more.
TEST(IndexedRows, HoldATwelfthAndTheKeptTokens) {
  AttentionGeometry g = kGeometry;
  g.head_dim = 64;
  g.cache_type = StorageType::kBFloat16;
  AtpOptions options = Calibrated(0, 0);
  const double all = static_cast<double>(PageBytes(g));
  const auto share = [&] { return static_cast<double>(ShapeOf(g, options).SlabBytes(g)) / all; };
  EXPECT_LT(share(), 0.083);
  options.refine_tokens = 128, options.kept_storage = AtpStorage::kInt4;
  EXPECT_LT(share(), 0.396);
}

}  // namespace
}  // namespace lowkey
