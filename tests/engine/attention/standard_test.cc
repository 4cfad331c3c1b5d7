#include "engine/attention/standard.h"

#include <algorithm>
#include <cmath>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

struct StandardCase {
  StorageType type;
  double tolerance;  // against a reference over the cache's own rounded keys and values
};

class StandardAttentionTest : public testing::TestWithParam<StandardCase> {
 protected:
  void ExpectMatchesReference(AttentionGeometry g, int64_t n_tokens) const {
    g.cache_type = GetParam().type;
    const AttentionRows rows = RandomRows(g, n_tokens, 1);
    const std::vector<float> out = RunSequence(rows, {Standard(), 96});
    const int64_t layer_size = n_tokens * g.n_heads * g.head_dim;
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      const double difference =
          MaxDifference(out.data() + layer * layer_size, ReferenceStandard(rows, layer));
      EXPECT_LE(difference, GetParam().tolerance)
          << n_tokens << " tokens, " << g.n_heads << "/" << g.n_kv_heads << " heads of "
          << g.head_dim << ", window " << g.sliding_window.value_or(0);
      worst_ = std::max(worst_, difference);
    }
  }
  void TearDown() override { RecordProperty("max_difference", std::to_string(worst_)); }

  mutable double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Caches, StandardAttentionTest,
                         testing::Values(StandardCase{StorageType::kFloat32, 2e-6},
                                         StandardCase{StorageType::kBFloat16, 2e-6}),
                         [](const auto& info) {
                           return info.param.type == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(StandardAttentionTest, MatchesTheReferenceAtEveryShape) {
  for (int64_t group : {1, 2, 4, 8}) {
    for (int64_t head_dim : {8, 20, 32, 64, 80, 128}) {
      ExpectMatchesReference({1, group, 1, head_dim, {}, {}}, 130);
      ExpectMatchesReference({1, 2 * group, 2, head_dim, {}, {}}, 33);
    }
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceAtEveryLength) {
  for (int64_t n : {1, 2, 3, 15, 16, 17, 47, 48, 49, 63, 64, 65, 127, 128, 129, 200, 256, 300}) {
    ExpectMatchesReference({2, 4, 2, 16, {}, {}}, n);
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceUnderASlidingWindow) {
  for (int64_t window : {1, 16, 63, 64, 65, 100, 1000}) {
    for (int64_t n : {1, 64, 65, 300}) ExpectMatchesReference({1, 3, 1, 20, window, {}}, n);
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceWithWideHeadCounts) {
  ExpectMatchesReference({1, 64, 1, 8, {}, {}}, 70);  // more query heads than rows in a task
  ExpectMatchesReference({3, 6, 6, 8, {}, {}}, 70);
}

TEST_P(StandardAttentionTest, OneVisibleTokenIsItsValue) {
  const AttentionRows rows = RandomRows({1, 2, 2, 12, 1, GetParam().type}, 70, 2);
  const std::vector<float> out = RunSequence(rows, {Standard(), 7});
  EXPECT_EQ(MaxDifference(out.data(), ReferenceStandard(rows, 0)), 0.0);
}

TEST_P(StandardAttentionTest, HugeScoresPickOneToken) {
  AttentionRows rows = RandomRows({1, 1, 1, 16, {}, GetParam().type}, 100, 3);
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t j = 0; j < 32; ++j) rows.row(0, i)[j] *= 1e4f;
  }
  EXPECT_LE(MaxDifference(RunSequence(rows, {Standard()}).data(), ReferenceStandard(rows, 0)),
            1e-4);
}

// Spans of 1,024 tokens: few rows are spread over threads span by span, a long prompt is not.
TEST_P(StandardAttentionTest, RowsSpreadOverSpansHaveTheBitsOfRowsThatAreNot) {
  for (const std::optional<int64_t>& window :
       {std::optional<int64_t>(), std::optional<int64_t>(1500), std::optional<int64_t>(70)}) {
    const AttentionRows rows = RandomRows({1, 6, 2, 16, window, GetParam().type}, 2110, 4);
    const std::vector<float> at_once = RunSequence(rows, {Standard()});
    EXPECT_LE(MaxDifference(at_once.data(), ReferenceStandard(rows, 0)), GetParam().tolerance);
    RunOptions by_token{Standard(), 1000};
    by_token.n_prompt_tokens = 2000;
    for (int n_threads : {1, 3}) {
      by_token.n_threads = n_threads;
      EXPECT_EQ(RunSequence(rows, by_token), at_once)
          << "window " << window.value_or(0) << ", " << n_threads << " threads";
    }
  }
}

TEST_P(StandardAttentionTest, BoundIsWholePages) {
  const AttentionGeometry g{2, 4, 2, 20, {}, GetParam().type};
  MechanismRunner runner(g, Mechanism::kStandard);
  const int64_t page = PageBytes(g);
  for (const auto& [n_tokens, pages] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {64, 1}, {65, 2}, {1000, 16}}) {
    EXPECT_EQ(runner.mechanism().BoundBytes(Standard(), {1, n_tokens, 8}), pages * page);
  }
}

// Another sequence's leftovers in a page are never read, not even when they are not numbers.
TEST_P(StandardAttentionTest, LeftoversInAPageAreInvisible) {
  const AttentionGeometry g{1, 2, 1, 20, {}, GetParam().type};
  MechanismRunner runner(g, Mechanism::kStandard);
  AttentionRows poison = RandomRows(g, 64, 1);
  std::fill(poison.data.begin(), poison.data.end(), std::nanf(""));
  {
    SequenceCache sequence = NewSequence(Standard(), 64);
    std::vector<float> out;
    ASSERT_TRUE(runner.Step({{&sequence, &poison, 64, &out}}).ok());
  }
  const AttentionRows rows = RandomRows(g, 40, 2);
  SequenceCache sequence = NewSequence(Standard(), 40);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 40, &out}}).ok());
  EXPECT_TRUE(SameBits(out, RunSequence(rows, {Standard()})));
}

}  // namespace
}  // namespace lowkey
