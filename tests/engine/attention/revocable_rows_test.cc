// The contract of RevocableRows: rows that a sequence does not keep leave nothing behind.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 400, kPrompt = 70;

struct RevocableCase {
  std::string name;
  AttentionOptions options;
  bool is_any_length = false;  // whether every number of rows can be taken back
  bool is_never = false;
  std::optional<int64_t> sliding_window = {};
};

AttentionOptions Of(Mechanism mechanism) {
  AttentionOptions options;
  options.mechanism = mechanism;
  return options;
}

AttentionOptions AtpOf(AtpBasis basis, bool merges = false) {
  AtpOptions options{RankFixed{8}, basis, AtpPrefill::kExact, 64, 4, 0};
  options.merge = merges;
  if (merges) options.readout = AtpReadout::kLinear;
  return Atp(options);
}

AttentionOptions WithoutKeys() {
  AttentionOptions options = Of(Mechanism::kEfficient);
  options.efficient.key_storage = KeyStorage::kNone;
  return options;
}

class RevocableRows : public testing::TestWithParam<RevocableCase> {};

INSTANTIATE_TEST_SUITE_P(
    Mechanisms, RevocableRows,
    testing::Values(RevocableCase{"standard", Standard(), true},
                    RevocableCase{"sliding", Standard(), true, false, 100},
                    RevocableCase{"int8", Standard(CacheStorage::kInt8)},
                    RevocableCase{"int4", Standard(CacheStorage::kInt4)},
                    RevocableCase{"atp_layer", AtpOf(AtpBasis::kLayer)},
                    RevocableCase{"atp_input", AtpOf(AtpBasis::kInput)},
                    RevocableCase{"atp_merge", AtpOf(AtpBasis::kKv, true)},
                    RevocableCase{"taylorshift", TaylorShift()},
                    RevocableCase{"taylorshift_direct", TaylorShift(TaylorForm::kDirect), true},
                    RevocableCase{"taylorshift_recurrent", TaylorShift(TaylorForm::kRecurrent)},
                    RevocableCase{"optimised", Of(Mechanism::kOptimised), true},
                    RevocableCase{"efficient", Of(Mechanism::kEfficient), true},
                    RevocableCase{"efficient_no_keys", WithoutKeys(), true},
                    RevocableCase{"super", Of(Mechanism::kSuper), true},
                    RevocableCase{"lasso", Of(Mechanism::kLasso), false, true}),
    [](const auto& info) { return info.param.name; });

// Returns `rows` with other rows from position `first` on: drafts that are wrong.
AttentionRows WrongFrom(const AttentionRows& rows, int64_t first, int64_t end) {
  AttentionRows wrong = rows;
  for (int64_t layer = 0; layer < rows.geometry.n_layers; ++layer) {
    for (int64_t t = first; t < end; ++t) {
      for (int64_t j = 0; j < rows.ld(); ++j)
        wrong.row(layer, t)[j] = 3 - 2 * rows.row(layer, t)[j];
    }
  }
  return wrong;
}

TEST_P(RevocableRows, WhatIsNotKeptLeavesNothingBehind) {
  const RevocableCase& c = GetParam();
  const AttentionGeometry g{2, 4, 2, 20, c.sliding_window, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, kTokens, 1);
  RunOptions options{c.options};
  options.n_prompt_tokens = kPrompt;
  const std::vector<float> expected = RunSequence(rows, options);
  MechanismRunner runner(g, c.options.mechanism);
  std::mt19937 rng(1);
  int64_t n_together = 0;
  {
    SequenceCache sequence = NewSequence(c.options, kPrompt), fork;
    sequence.n_final_tokens = kTokens;
    std::vector<float> out, fork_out;
    ASSERT_TRUE(runner.Step({{&sequence, &rows, kPrompt, &out}}).ok());
    while (sequence.n_tokens < kTokens) {
      if (fork.n_tokens == 0 && sequence.n_tokens > 150) {
        fork = sequence;
        fork_out = out;
      }
      const int64_t first = sequence.n_tokens;
      const int64_t asked = std::min<int64_t>(1 + rng() % 12, kTokens - first);
      const int64_t n = runner.mechanism().RevocableRows(sequence, asked);
      ASSERT_TRUE(n >= 1 && n <= asked) << n << " of " << asked;
      ASSERT_TRUE(n == asked || !c.is_any_length);
      ASSERT_TRUE(n == 1 || !c.is_never);
      n_together += n - 1;
      const int64_t n_kept = 1 + rng() % n;
      const AttentionRows step = WrongFrom(rows, first + n_kept, first + n);
      ASSERT_TRUE(runner.Step({{&sequence, &step, n, &out, n_kept}}).ok());
      ASSERT_EQ(sequence.n_tokens, first + n_kept);
    }
    EXPECT_TRUE(SameBits(out, expected));
    // The fork shares what the sequence wrote before it, and nothing after.
    ASSERT_TRUE(runner.Step({{&fork, &rows, kTokens - fork.n_tokens, &fork_out}}).ok());
    EXPECT_TRUE(SameBits(fork_out, expected));
  }
  EXPECT_EQ(runner.cache().used_bytes(), 0);
  EXPECT_EQ(n_together > 100, !c.is_never);
}

TEST(RowsToNextEnd, OnlyTheFirstRowMayEndARun) {
  EXPECT_EQ(RowsToNextEnd(0, 100, 64), 63);
  EXPECT_EQ(RowsToNextEnd(60, 100, 64), 3);
  EXPECT_EQ(RowsToNextEnd(62, 100, 64), 1);
  EXPECT_EQ(RowsToNextEnd(63, 100, 64), 64);  // the run ends for certain
  EXPECT_EQ(RowsToNextEnd(64, 5, 64), 5);
}

}  // namespace
}  // namespace lowkey
