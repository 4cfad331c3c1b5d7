#include "engine/attention/atp/calibrated/indexed_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/atp/policy.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 300, kPrompt = 260, kBlock = 64, kDim = 64;
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

// Computes what the last row reads, in double: tokens before the window from the index, but for the
// chosen ones, and all others exactly. [n_heads][kDim].
class Reference {
 public:
  Reference(const AttentionRows& rows, const AtpOptions& options,
            double least_share = IndexedRows::kLeastShare,
            double least_page_share = IndexedRows::kLeastPageShare)
      : rows_(rows),
        options_(options),
        least_share_(least_share),
        least_page_share_(least_page_share) {
    // Blocks up to the window are far; the row's own is the last.
    n_far_ = ((kTokens - 1) / kBlock - options.window_blocks) * kBlock;
    for (int64_t h = 0; h < rows_.geometry.n_kv_heads; ++h) AddHead(h);
  }
  const std::vector<double>& out() const { return out_; }

 private:
  const float* Key(int64_t token, int64_t head) const {
    return rows_.row(0, token) + rows_.geometry.q_dim() + head * kDim;
  }
  const float* Value(int64_t token, int64_t head) const {
    return rows_.row(0, token) + rows_.geometry.q_dim() + rows_.geometry.k_dim() + head * kDim;
  }

  // Fills pages_ with the far tokens' index.
  void Encode(int64_t head) {
    pages_.clear(), coded_pages_.clear();
    TokenIndex::Scratch scratch;
    std::vector<std::byte> page(TokenIndex::PageBytes(rows_.geometry));
    rest_.assign(n_far_ * RestBytes(), std::byte{0});
    std::vector<float> columns(2 * kDim * kPageTokens);
    for (int64_t first = 0; first < n_far_; first += kPageTokens) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        for (int64_t j = 0; j < kDim; ++j) {
          columns[j * kPageTokens + t] = Key(first + t, head)[j];
          columns[(kDim + j) * kPageTokens + t] = Value(first + t, head)[j];
        }
      }
      index_.Encode(
          {0, head, first / kPageTokens, columns.data(), columns.data() + kDim * kPageTokens},
          scratch, page.data(), rest_.data() + first * RestBytes());
      pages_.push_back(ReadIndex(rows_.geometry, index_, 0, head, page));
      coded_pages_.push_back(page);
    }
  }

  int64_t RestBytes() const { return TokenRest::KeyBytes(kDim) + TokenRest::ValueBytes(kDim); }

  // Returns what a chosen far token's vector is read as: the exact one, or `out`, its mean, and the
  // sum of what the index, with the levels that the rest makes finer, and the rest have of it.
  using ReadCodes = float (TokenIndex::*)(const TokenIndex::Page&, int64_t, const LevelBands&,
                                          int8_t*) const;
  std::vector<double> Whole(const float* exact, std::vector<double> out,
                            const TokenIndex::Half& half, ReadCodes read,
                            const TokenRest::Half& rest, const std::byte* kept,
                            int64_t token) const {
    if (options_.kept_storage != AtpStorage::kRest) return {exact, exact + kDim};
    std::vector<int8_t> levels(rest.n_padded() + 4), lead(half.n());
    const double scale = TokenRest::Read(rest, kept, levels.data());
    const TokenIndex::Page page =
        TokenIndex::PageAt(rows_.geometry, coded_pages_[token / kPageTokens].data());
    const double unit =
        TokenRest::kLeadUnit * (index_.*read)(page, token % kPageTokens, half.bands, lead.data());
    TokenRest::ReadLead(rest, kept, lead.data());
    for (int64_t i = 0; i < kDim; ++i) {
      for (int64_t j = 0; j < half.n(); ++j) {
        out[i] += unit * lead[j] * half.rows[j * half.width + i];
      }
      for (int64_t j = 0; j < rest.n(); ++j) {
        out[i] += scale * levels[j] * rest.rows[j * rest.width + i];
      }
    }
    return out;
  }
  std::vector<double> WholeKey(int64_t token, int64_t head) const {
    if (!IsFar(token)) return {Key(token, head), Key(token, head) + kDim};
    const TokenIndex::Half& half = index_.keys(0, head);
    return Whole(Key(token, head), TurnedMean(codes_.heads, half.mean(), token), half,
                 &TokenIndex::ReadKey, index_.rest().keys(0, head),
                 rest_.data() + token * RestBytes(), token);
  }
  std::vector<double> WholeValue(int64_t token, int64_t head) const {
    if (!IsFar(token)) return {Value(token, head), Value(token, head) + kDim};
    const TokenRest::Half& keys = index_.rest().keys(0, head);
    const TokenIndex::Half& half = index_.values(0, head);
    return Whole(Value(token, head), {half.mean(), half.mean() + kDim}, half,
                 &TokenIndex::ReadValue, index_.rest().values(0, head),
                 rest_.data() + token * RestBytes() + keys.bytes(), token);
  }

  template <class X>
  static double Dot(const float* q, const X& x) {
    double sum = 0;
    for (int64_t j = 0; j < kDim; ++j) sum += static_cast<double>(q[j]) * x[j];
    return sum / std::sqrt(static_cast<double>(kDim));
  }

  // The scores of one query head: of far tokens through the index, for which the query's products
  // with the components are rounded to 8 bits.
  std::vector<double> Scores(int64_t head, const float* q) const {
    const TokenIndex::Half& keys = index_.keys(0, head);
    std::vector<double> low, scores;
    double most = 0;
    for (int64_t j = 0; j < keys.n(); ++j) {
      low.push_back(Dot(q, keys.rows.data() + j * keys.width));
      most = std::max(most, std::abs(low.back()));
    }
    for (double& x : low) x = std::nearbyint(x / most * 127) * most / 127;
    for (int64_t t = 0; t < kTokens; ++t) {
      if (!IsFar(t)) {
        scores.push_back(Dot(q, Key(t, head)));
        continue;
      }
      const IndexedPage& page = pages_[t / kPageTokens];
      double& score = scores.emplace_back(Dot(q, TurnedMean(codes_.heads, keys.mean(), t)));
      for (int64_t j = 0; j < keys.n(); ++j) {
        score += low[j] * page.keys.components[j * kPageTokens + t % kPageTokens];
      }
    }
    return scores;
  }

  bool IsFar(int64_t token) const { return token >= options_.sinks && token < n_far_; }

  // The far tokens that matter most to all query heads of a KV head.
  std::vector<bool> Chosen(const std::vector<std::vector<double>>& scores) const {
    std::vector<double> shares(kTokens);
    for (const std::vector<double>& of_head : scores) {
      double sum = 0;
      for (const double score : of_head) sum += std::exp(score);
      for (int64_t t = 0; t < kTokens; ++t) {
        if (IsFar(t)) shares[t] += std::exp(of_head[t]) / sum;
      }
    }
    std::vector<int64_t> order(kTokens);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return shares[a] > shares[b]; });
    std::vector<bool> chosen(kTokens);
    for (int64_t i = 0; i < std::min<int64_t>(options_.refine_tokens, kTokens); ++i) {
      chosen[order[i]] = shares[order[i]] >= least_share_;
    }
    return chosen;
  }

  // Adds the values of a page's far tokens to `out`, or the mean in their place. Weights of
  // components are rounded to 8 bits.
  void AddPage(int64_t number, int64_t head, const std::vector<double>& weights, bool is_read,
               std::vector<double>& out) const {
    const TokenIndex::Half& values = index_.values(0, head);
    const IndexedPage::Half& page = pages_[number].values;
    double most = 0;
    for (int64_t t = 0; t < kPageTokens; ++t) most = std::max(most, weights[t] * page.gains[t]);
    for (int64_t t = 0; t < kPageTokens; ++t) {
      const double rounded =
          is_read && most > 0 ? std::nearbyint(weights[t] * page.gains[t] / most * 255) * most / 255
                              : 0;
      for (int64_t i = 0; i < kDim; ++i) {
        out[i] += weights[t] * values.mean()[i];
        for (int64_t j = 0; j < values.n(); ++j) {
          out[i] += rounded / page.gains[t] * page.components[j * kPageTokens + t] *
                    values.rows[j * values.width + i];
        }
      }
    }
  }

  // Returns the weights of a page's tokens that are not read whole.
  std::vector<double> PageWeights(const std::vector<double>& scores, int64_t page,
                                  const std::vector<bool>& chosen) const {
    std::vector<double> weights(kPageTokens);
    for (int64_t i = 0; i < kPageTokens; ++i) {
      const int64_t t = page * kPageTokens + i;
      if (IsFar(t) && !chosen[t]) weights[i] = std::exp(scores[t]);
    }
    return weights;
  }

  // Returns whether some query head has a page's share of its weights.
  bool IsPageRead(const std::vector<std::vector<double>>& scores, int64_t page,
                  const std::vector<bool>& chosen) const {
    for (const std::vector<double>& of_head : scores) {
      const std::vector<double> weights = PageWeights(of_head, page, chosen);
      double sum = 0;
      for (const double score : of_head) sum += std::exp(score);
      const double share = std::accumulate(weights.begin(), weights.end(), 0.0) / sum;
      if (share * static_cast<double>(n_far_ / kPageTokens) >= least_page_share_) return true;
    }
    return false;
  }

  void AddHead(int64_t head) {
    Encode(head);
    const int64_t group = rows_.geometry.group();
    const float* q = rows_.row(0, kTokens - 1) + head * group * kDim;
    std::vector<std::vector<double>> scores;
    for (int64_t g = 0; g < group; ++g) scores.push_back(Scores(head, q + g * kDim));
    const std::vector<bool> chosen = Chosen(scores);
    for (int64_t g = 0; g < group; ++g) {
      double sum = 0;
      std::vector<double> out(kDim);
      for (int64_t t = 0; t < kTokens; ++t) {
        if (IsFar(t) && !chosen[t]) continue;
        const double weight = std::exp(Dot(q + g * kDim, WholeKey(t, head)));
        sum += weight;
        const std::vector<double> value = WholeValue(t, head);
        for (int64_t j = 0; j < kDim; ++j) out[j] += weight * value[j];
      }
      for (int64_t p = 0; p < n_far_ / kPageTokens; ++p) {
        const std::vector<double> weights = PageWeights(scores[g], p, chosen);
        sum = std::accumulate(weights.begin(), weights.end(), sum);
        AddPage(p, head, weights, IsPageRead(scores, p, chosen), out);
      }
      for (const double x : out) out_.push_back(x / sum);
    }
  }

  const AttentionRows& rows_;
  const AtpOptions options_;
  const double least_share_, least_page_share_;
  const PrincipalCodes codes_ = TestCodes(rows_.geometry);
  const TokenIndex index_{rows_.geometry, codes_.heads};
  int64_t n_far_ = 0;
  std::vector<IndexedPage> pages_;
  std::vector<std::vector<std::byte>> coded_pages_;
  std::vector<std::byte> rest_;  // of the far tokens
  std::vector<double> out_;
};

std::vector<float> LastRow(const AttentionRows& rows, const AtpOptions& options) {
  const std::vector<float> out = RunSequence(
      rows, {.attention = Atp(options), .chunk_tokens = 100, .n_prompt_tokens = kPrompt});
  return {out.end() - rows.geometry.out_dim(), out.end()};
}

double ErrorOf(const AttentionRows& rows, const AtpOptions& options) {
  return MaxDifference(LastRow(rows, options).data(), Reference(rows, options).out());
}

// Multiplies all queries, which makes shares less or more equal.
void ScaleQueries(float factor, AttentionRows& rows) {
  for (int64_t t = 0; t < rows.n_tokens; ++t) {
    float* q = rows.row(0, t);
    for (int64_t i = 0; i < rows.geometry.q_dim(); ++i) q[i] *= factor;
  }
}

TEST(IndexedRows, ReadWhatTheFormulaReads) {
  // No product of these queries lies so near the middle of two integers that it may go either way.
  const AttentionRows rows = RandomRows(kGeometry, kTokens, 13);
  for (const int32_t sinks : {0, 5}) {
    for (const int32_t refine_tokens : {1, 17, 60}) {
      EXPECT_LT(ErrorOf(rows, Calibrated(sinks, refine_tokens)), 2e-5)
          << sinks << ", " << refine_tokens;
      AtpOptions rest = Calibrated(sinks, refine_tokens);
      rest.kept_storage = AtpStorage::kRest;
      EXPECT_LT(ErrorOf(rows, rest), 2e-5) << sinks << ", " << refine_tokens;
    }
  }
}

TEST(IndexedRows, TokensOfSmallShareAreReadFromTheIndex) {
  // A KV head has two query heads, or one, whose weights are chosen by as they are.
  const AttentionGeometry single{1, 2, 2, kDim, std::nullopt, StorageType::kFloat32};
  for (const AttentionGeometry& geometry : {kGeometry, single}) {
    AttentionRows rows = RandomRows(geometry, kTokens, 3);
    ScaleQueries(4, rows);
    for (const AtpStorage storage : {AtpStorage::kCache, AtpStorage::kRest}) {
      AtpOptions options = Calibrated(5, 4096);
      options.kept_storage = storage;
      const std::vector<float> last = LastRow(rows, options);
      EXPECT_LT(MaxDifference(last.data(), Reference(rows, options).out()), 2e-5);
      EXPECT_GT(MaxDifference(last.data(), Reference(rows, options, 0).out()), 2e-4);
    }
  }
}

// The second page's keys lie opposite to the queries of the last row.
TEST(IndexedRows, PagesOfSmallShareHaveTheMeanAsTheirValues) {
  AttentionRows rows = RandomRows(kGeometry, kTokens, 8);
  const float* q = rows.row(0, kTokens - 1);
  const int64_t group = kGeometry.group();
  for (int64_t t = kPageTokens; t < 2 * kPageTokens; ++t) {
    float* keys = rows.row(0, t) + kGeometry.q_dim();
    for (int64_t i = 0; i < kGeometry.k_dim(); ++i) {
      const float* heads = q + i / kDim * group * kDim + i % kDim;
      keys[i] = 0.1f * keys[i] - 2.0f * (heads[0] + heads[kDim]);
    }
  }
  for (const AtpStorage storage : {AtpStorage::kCache, AtpStorage::kRest}) {
    AtpOptions options = Calibrated(5, 7);
    options.kept_storage = storage;
    const std::vector<float> last = LastRow(rows, options);
    EXPECT_LT(MaxDifference(last.data(), Reference(rows, options).out()), 2e-5);
    const Reference all_pages(rows, options, IndexedRows::kLeastShare, 0);
    EXPECT_GT(MaxDifference(last.data(), all_pages.out()), 2e-4);
  }
}

// The near tokens outweigh the far ones by so much that the weights of far tokens are zero.
TEST(IndexedRows, RowsMayChooseNoToken) {
  AttentionRows rows = RandomRows(kGeometry, kTokens, 6);
  ScaleQueries(1000, rows);
  for (int64_t t = 0; t < kTokens; ++t) {
    float* row = rows.row(0, t);
    for (int64_t i = 0; i < kGeometry.k_dim(); ++i)
      row[kGeometry.q_dim() + i] *= t < 200 ? 0.01f : 1;
  }
  for (const AtpStorage storage : {AtpStorage::kCache, AtpStorage::kRest}) {
    AtpOptions options = Calibrated(0, 17);
    options.kept_storage = storage;
    const std::vector<float> last = LastRow(rows, options);
    const std::vector<double> standard = ReferenceStandard(rows, 0);
    EXPECT_LT(MaxDifference(last.data(), {standard.end() - kGeometry.out_dim(), standard.end()}),
              1e-3);
  }
}

TEST(IndexedRows, RefiningEveryFarTokenReadsWhatStandardReads) {
  AttentionRows rows = RandomRows(kGeometry, kTokens, 4);
  ScaleQueries(0.5f, rows);
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

// Few rows spread their far tokens over the threads.
TEST(IndexedRows, HaveTheSameBitsOnAnyNumberOfThreads) {
  constexpr int64_t kLong = 2 * IndexedRows::kPartPages * kPageTokens + 300;
  // Scaled queries make rows choose different numbers of tokens, 100 at most.
  AttentionRows rows = RandomRows(kGeometry, kLong, 5);
  ScaleQueries(4, rows);
  AtpOptions options = Calibrated(4, 100);
  for (const auto& [storage, chunk_tokens] :
       {std::pair{AtpStorage::kInt4, 1}, {AtpStorage::kInt4, 3}, {AtpStorage::kRest, 3}}) {
    options.kept_storage = storage;
    RunOptions run{.attention = Atp(options)};
    run.n_prompt_tokens = kLong - 12;
    run.chunk_tokens = 512;
    const std::vector<float> alone = RunSequence(rows, run);
    run.n_threads = 3;
    EXPECT_TRUE(SameBits(RunSequence(rows, run), alone));
    run.attention.atp.prefill = AtpPrefill::kCompressed;
    run.n_threads = 1;
    const std::vector<float> compressed = RunSequence(rows, run);
    run.chunk_tokens = chunk_tokens * 7;
    run.n_threads = 4;
    EXPECT_TRUE(SameBits(RunSequence(rows, run), compressed)) << chunk_tokens;
  }
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
  AtpOptions options = Calibrated(0, 0);  // the index alone
  const double all = static_cast<double>(PageBytes(g));
  const auto share = [&] { return static_cast<double>(ShapeOf(g, options).SlabBytes(g)) / all; };
  EXPECT_LT(share(), 0.083);
  options.refine_tokens = 128, options.kept_storage = AtpStorage::kInt4;
  EXPECT_LT(share(), 0.396);
  options.kept_storage = AtpStorage::kRest;
  EXPECT_LT(share(), 0.238);
}

}  // namespace
}  // namespace lowkey
