#include "engine/attention/pages/row_block.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

struct Cut {
  int64_t first_position, n_rows;
  RowCuts cuts;
};

// Every row is in one task for each KV head, no task is too large or straddles a cut.
void ExpectCovered(const AttentionGeometry& g, const Cut& c) {
  std::vector<RowBlockTask> tasks;
  AppendRowBlocks(g, 3, {nullptr, c.first_position, c.n_rows, 0}, c.cuts, tasks);
  std::map<std::pair<int32_t, int64_t>, int> times;
  for (const RowBlockTask& t : tasks) {
    EXPECT_EQ(t.segment, 3);
    EXPECT_GE(t.n_tokens, 1);
    EXPECT_LE(t.n_tokens, MaxRowBlockTokens(g));
    const int64_t first = c.first_position + t.first_row, last = first + t.n_tokens - 1;
    if (c.cuts.every.has_value()) {
      EXPECT_EQ(first / *c.cuts.every, last / *c.cuts.every);
    }
    if (c.cuts.at.has_value()) {
      EXPECT_EQ(first < *c.cuts.at, last < *c.cuts.at);
    }
    for (int64_t i = 0; i < t.n_tokens; ++i) ++times[{t.kv_head, t.first_row + i}];
  }
  EXPECT_EQ(static_cast<int64_t>(times.size()), g.n_kv_heads * c.n_rows);
  for (const auto& [row, n] : times) EXPECT_EQ(n, 1);
}

TEST(AppendRowBlocks, TakesAboutAsManyRowsWhateverTheirHeads) {
  const int64_t most = Kernels().has_matrix_unit ? 192 : 48;
  for (int64_t group : {1, 2, 5, 48, 500}) {
    const AttentionGeometry g{1, 2 * group, 2, 8, std::nullopt, StorageType::kFloat32};
    EXPECT_EQ(MaxRowBlockTokens(g), std::max<int64_t>(1, most / group));
  }
}

TEST(AppendRowBlocks, CoversEveryRowOnce) {
  for (int64_t group : {1, 2, 5, 48, 64}) {
    const AttentionGeometry g{1, 2 * group, 2, 8, std::nullopt, StorageType::kFloat32};
    for (int64_t first : {0, 1, 63, 64, 500}) {
      for (int64_t n : {1, 7, 64, 200}) {
        ExpectCovered(g, {first, n, {}});
        ExpectCovered(g, {first, n, {64, std::nullopt}});
        ExpectCovered(g, {first, n, {128, 100}});
        ExpectCovered(g, {first, n, {64, first + n}});
        ExpectCovered(g, {first, n, {std::nullopt, first + n / 2}});
        ExpectCovered(g, {first, n, {128, std::nullopt, 1}});
      }
    }
  }
}

TEST(AppendRowBlocks, LongestWorkComesFirstAndAfterWhatIsThere) {
  const AttentionGeometry g{1, 1, 1, 8, std::nullopt, StorageType::kFloat32};
  std::vector<RowBlockTask> tasks = {{9, 0, 0, 1}};
  const int64_t most = MaxRowBlockTokens(g);
  AppendRowBlocks(g, 1, {nullptr, 0, 2 * most + 4, 0}, {}, tasks);
  ASSERT_EQ(tasks.size(), 4u);
  EXPECT_EQ(tasks[0].segment, 9);
  EXPECT_EQ(tasks[1].first_row, 2 * most);
  EXPECT_EQ(tasks[2].first_row, most);
  EXPECT_EQ(tasks[3].first_row, 0);
}

// A sequence whose keys and values are in its pages. Its rows [n_tokens, ld] hold the queries of
// all heads, a key and a value of the one KV head, and perhaps more.
struct WrittenSequence {
  WrittenSequence(const AttentionGeometry& g, const float* rows, int64_t n_tokens, int64_t ld)
      : cache(*Cache::Create(RoundUp(n_tokens, kPageTokens) / kPageTokens * PageBytes(g),
                             PageBytes(g))),
        all{&sequence, 0, n_tokens, 0},
        out(n_tokens * g.out_dim()) {
    const float *k = rows + g.q_dim(), *v = k + g.head_dim;
    layer = {0, nullptr, 0, rows, k, v, ld, out.data(), g.out_dim()};
    EXPECT_TRUE(TakePages(all, *cache).ok());
    ThreadPool pool(1);
    WriteKv(g, {&all, 1}, layer, pool);
  }

  std::unique_ptr<Cache> cache;
  SequenceCache sequence;
  const Segment all;
  std::vector<float> out;  // [n_tokens, out_dim]
  LayerRows layer;
};

// One token, two query heads, two visible keys: weights and values by hand.
TEST(RowBlock, WorkedExample) {
  const AttentionGeometry g{1, 2, 1, 4, std::nullopt, StorageType::kFloat32};
  const float rows[2][16] = {{0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4},
                             {1, 0, 0, 0, -1, 0, 0, 0, 4, 0, 0, 0, 5, 6, 7, 8}};
  WrittenSequence written(g, rows[0], 2, 16);

  RowBlock block;
  block.Reserve(g);
  const RowBlockTask task{0, 0, 1, 1};
  block.Begin(g, written.all, task, written.layer);
  EXPECT_EQ(block.first_position(), 1);
  EXPECT_EQ(block.last_position(), 1);
  block.AddPage(TileOf(g, written.sequence.pages[0], 0, 0), 0, 2);
  block.Finish(written.all, task, written.layer);
  const float* out = written.out.data() + 8;  // the second token's
  // Scores 2 / 2 and 4 / 2, negated for the second head.
  const float near = 1 / (1 + std::exp(-1.0f)), far = 1 - near;
  for (int j = 0; j < 4; ++j) {
    EXPECT_NEAR(out[j], near * rows[1][12 + j] + far * rows[0][12 + j], 1e-6);
    EXPECT_NEAR(out[4 + j], far * rows[1][12 + j] + near * rows[0][12 + j], 1e-6);
  }
}

// Compares rows of one KV head with the online softmax in double, page by page. Where the CPU
// multiplies bf16, queries and weights are rounded, and the sum is that of the rounded ones.
TEST(RowBlock, PagesOfBf16MatchTheirDefinition) {
  const AttentionGeometry g{1, 3, 1, 20, std::nullopt, StorageType::kBFloat16};
  constexpr int64_t kTokens = 151, kDim = 20;
  const AttentionRows rows = RandomRows(g, kTokens, 7);
  WrittenSequence written(g, rows.data.data(), kTokens, rows.ld());

  const auto bf16 = [](double x) { return ToFloat(ToBFloat16(static_cast<float>(x))); };
  const bool rounds = Kernels().rounds_activations;
  const auto rounded = [&](double x) { return rounds ? bf16(x) : x; };
  const auto reference = [&](int64_t token, int64_t head) {
    std::vector<double> sum(kDim + 1, 0.0);
    double top = -INFINITY;
    for (int64_t first = 0; first <= token; first += kPageTokens) {
      std::vector<double> scores;
      for (int64_t t = first; t <= std::min(token, first + kPageTokens - 1); ++t) {
        double score = 0;
        for (int64_t j = 0; j < kDim; ++j) {
          const double q = rows.row(0, token)[head * kDim + j] / std::sqrt(1.0 * kDim);
          score += rounded(q) * bf16(rows.row(0, t)[3 * kDim + j]);
        }
        scores.push_back(score);
      }
      const double new_top = std::max(top, *std::max_element(scores.begin(), scores.end()));
      for (double& x : sum) x *= std::exp(top - new_top);
      top = new_top;
      for (size_t i = 0; i < scores.size(); ++i) {
        const double weight = rounded(std::exp(scores[i] - top));
        const float* value = rows.row(0, first + static_cast<int64_t>(i)) + 4 * kDim;
        for (int64_t j = 0; j < kDim; ++j) sum[j] += weight * bf16(value[j]);
        sum[kDim] += weight;
      }
    }
    return sum;
  };
  RowBlock block;
  block.Reserve(g);
  // The tasks have few rows and many, whole pages and parts of one.
  for (const RowBlockTask& task : {RowBlockTask{0, 0, 150, 1}, RowBlockTask{0, 0, 66, 2},
                                   RowBlockTask{0, 0, 140, 11}, RowBlockTask{0, 0, 60, 9}}) {
    block.Begin(g, written.all, task, written.layer);
    for (int64_t page = 0; page * kPageTokens <= block.last_position(); ++page) {
      block.AddPage(TileOf(g, written.sequence.pages[page], 0, 0), page, kTokens);
    }
    block.Finish(written.all, task, written.layer);
    for (int64_t token = task.first_row; token < task.first_row + task.n_tokens; ++token) {
      for (int64_t head = 0; head < 3; ++head) {
        const std::vector<double> sum = reference(token, head);
        for (int64_t j = 0; j < kDim; ++j) {
          // A weight between two numbers in bf16 may be rounded to either.
          ASSERT_NEAR(written.out[(token * 3 + head) * kDim + j], sum[j] / sum[kDim],
                      rounds ? 2e-4 : 2e-6)
              << "token " << token << ", head " << head << ", column " << j;
        }
      }
    }
  }
}

// Three pages as parts of one block, as parts that other blocks saved, and at once.
TEST(RowBlock, PartsFoldedHereOrSavedElsewhereGiveTheSameBits) {
  const AttentionGeometry g{1, 3, 1, 8, std::nullopt, StorageType::kFloat32};
  constexpr int64_t kTokens = 150, kRow = 3 * 8 + 2 * 8;
  std::vector<float> rows(kTokens * kRow);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i * i % 997));
  WrittenSequence written(g, rows.data(), kTokens, kRow);

  const RowBlockTask task{0, 0, 145, 5};
  RowBlock whole, folding, joining, part;
  for (RowBlock* b : {&whole, &folding, &joining, &part}) b->Reserve(g);
  const auto result = [&](RowBlock& block) {
    block.Finish(written.all, task, written.layer);
    return std::vector<float>(written.out.begin() + 145 * 24, written.out.end());
  };
  for (RowBlock* b : {&whole, &folding, &joining}) b->Begin(g, written.all, task, written.layer);
  for (int64_t page = 0; page < 3; ++page) {
    whole.AddPage(TileOf(g, written.sequence.pages[page], 0, 0), page, kTokens);
    folding.AddPage(TileOf(g, written.sequence.pages[page], 0, 0), page, kTokens);
    if (page < 2) folding.Fold();
    part.Begin(g, written.all, task, written.layer);
    part.AddPage(TileOf(g, written.sequence.pages[page], 0, 0), page, kTokens);
    std::vector<float> saved(part.PartFloats());
    part.SavePart(saved.data());
    joining.FoldPart(saved.data());
  }
  const std::vector<float> expected = result(folding), joined = result(joining);
  EXPECT_EQ(joined, expected);
  const std::vector<float> at_once = result(whole);
  for (size_t i = 0; i < at_once.size(); ++i) EXPECT_NEAR(at_once[i], expected[i], 1e-6);
}

}  // namespace
}  // namespace lowkey
