#include "engine/attention/taylorshift/host.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/engine/attention/attention_testing.h"
#include "tests/engine/attention/taylorshift/reference.h"

namespace lowkey {
namespace {

constexpr TaylorForm kForms[] = {TaylorForm::kDirect, TaylorForm::kRecurrent, TaylorForm::kAuto};
constexpr TaylorVariant kVariants[] = {TaylorVariant::kNormalized, TaylorVariant::kPlain};

std::vector<float> Temperatures(const AttentionGeometry& g) {
  std::vector<float> tau;
  for (int64_t i = 0; i < g.n_layers * g.n_heads; ++i) {
    tau.push_back(0.5f + 0.7f * static_cast<float>(i % 5));
  }
  return tau;
}

class TaylorShiftTest : public testing::TestWithParam<StorageType> {
 protected:
  // Switches after 192 tokens, in bf16 after 256.
  AttentionGeometry geometry(int64_t n_layers = 1) const {
    return {n_layers, 4, 2, 20, std::nullopt, GetParam()};
  }

  void ExpectMatchesReference(AttentionGeometry g, int64_t n_tokens) {
    g.cache_type = GetParam();
    const AttentionRows rows = RandomRows(g, n_tokens, 1);
    const std::vector<float> tau = Temperatures(g);
    const int64_t layer_size = n_tokens * g.n_heads * g.head_dim;
    for (TaylorVariant variant : kVariants) {
      for (TaylorForm form : kForms) {
        RunOptions options{TaylorShift(form, variant), 96};
        options.tau = tau;
        const std::vector<float> out = RunSequence(rows, options);
        for (int64_t layer = 0; layer < g.n_layers; ++layer) {
          const double difference = MaxDifference(
              out.data() + layer * layer_size, ReferenceTaylorShift(rows, layer, {variant, tau}));
          EXPECT_LE(difference, Tolerance(variant))
              << NameOf(form) << ", " << NameOf(variant) << ", " << n_tokens << " tokens, "
              << g.n_heads << "/" << g.n_kv_heads << " heads of " << g.head_dim;
          worst_ = std::max(worst_, difference);
        }
      }
    }
  }
  // A unit key's element may round to the other bf16 where the norms differ in their last bit.
  double Tolerance(TaylorVariant variant) const {
    const bool rounds = GetParam() == StorageType::kBFloat16;
    return rounds && variant == TaylorVariant::kNormalized ? 2e-3 : 2e-5;
  }
  void TearDown() override { RecordProperty("max_difference", std::to_string(worst_)); }

  double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Caches, TaylorShiftTest,
                         testing::Values(StorageType::kFloat32, StorageType::kBFloat16),
                         [](const auto& info) {
                           return info.param == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(TaylorShiftTest, MatchesTheReferenceAtEveryShape) {
  for (int64_t head_dim : {2, 8, 15, 20, 32, 64, 80}) {
    ExpectMatchesReference({1, 2, 2, head_dim, {}, {}}, 150);
    ExpectMatchesReference({1, 6, 2, head_dim, {}, {}}, 100);
  }
  ExpectMatchesReference({1, 1, 1, 128, {}, {}}, 130);
  ExpectMatchesReference({1, 1, 1, 300, {}, {}}, 66);  // a tile is one run of features
}

TEST_P(TaylorShiftTest, MatchesTheReferenceAtEveryLength) {
  for (int64_t n : {1, 2, 15, 47, 63, 64, 65, 127, 128, 129, 192, 193, 256, 257, 300, 450}) {
    ExpectMatchesReference(geometry(2), n);
  }
}

TEST_P(TaylorShiftTest, MatchesTheReferenceWithWideHeadCounts) {
  ExpectMatchesReference({1, 70, 1, 8, {}, {}}, 130);  // more query heads than tokens in a page
  ExpectMatchesReference({3, 6, 6, 8, {}, {}}, 130);
}

TEST_P(TaylorShiftTest, FormsAreEqualUpToRounding) {
  for (int64_t head_dim : {16, 20, 64}) {
    const AttentionGeometry g{1, 4, 2, head_dim, std::nullopt, GetParam()};
    const AttentionRows rows = RandomRows(g, 700, 2);
    for (TaylorVariant variant : kVariants) {
      const auto direct = RunSequence(rows, {TaylorShift(TaylorForm::kDirect, variant)});
      const auto recurrent = RunSequence(rows, {TaylorShift(TaylorForm::kRecurrent, variant)});
      EXPECT_LE(MaxDifference(recurrent.data(), {direct.begin(), direct.end()}), 1e-4)
          << NameOf(variant) << ", heads of " << head_dim;
      EXPECT_FALSE(SameBits(direct, recurrent));  // or one form ran twice
    }
  }
}

TEST_P(TaylorShiftTest, LongSequencesKeepTheFormsTogether) {
  const AttentionGeometry g{1, 2, 1, 16, std::nullopt, GetParam()};
  const AttentionRows rows = RandomRows(g, 16384, 4);
  const auto direct = RunSequence(rows, {TaylorShift(TaylorForm::kDirect), 512});
  const auto recurrent = RunSequence(rows, {TaylorShift(TaylorForm::kRecurrent), 512});
  worst_ = MaxDifference(recurrent.data(), {direct.begin(), direct.end()});
  EXPECT_LE(worst_, 1e-4);
}

TEST_P(TaylorShiftTest, ASequenceIsDirectUntilTheSwitchAndRecurrentAfterwards) {
  const AttentionGeometry g = geometry();
  const int64_t at = *TaylorSwitchTokens(g, {}) * g.n_heads * g.head_dim;
  const AttentionRows rows = RandomRows(g, 400, 3);
  const auto run = [&](TaylorForm form) { return RunSequence(rows, {TaylorShift(form), 50}); };
  const auto direct = run(TaylorForm::kDirect), recurrent = run(TaylorForm::kRecurrent);
  const auto automatic = run(TaylorForm::kAuto);
  EXPECT_TRUE(
      SameBits({automatic.begin(), automatic.begin() + at}, {direct.begin(), direct.begin() + at}));
  EXPECT_TRUE(SameBits({automatic.begin() + at, automatic.end()},
                       {recurrent.begin() + at, recurrent.end()}));
}

TEST_P(TaylorShiftTest, SequencesOfBothVariantsShareAStep) {
  const AttentionGeometry g = geometry();
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  const AttentionOptions options[] = {
      TaylorShift(), TaylorShift(TaylorForm::kAuto, TaylorVariant::kPlain),
      TaylorShift(TaylorForm::kDirect), TaylorShift(TaylorForm::kRecurrent)};
  std::vector<AttentionRows> rows;
  std::vector<SequenceCache> sequences;
  std::vector<std::vector<float>> outs(4);
  for (uint32_t i = 0; i < 4; ++i) {
    rows.push_back(RandomRows(g, 400, i));
    sequences.push_back(NewSequence(options[i], 400));
  }
  while (sequences[0].n_tokens < 400) {
    std::vector<MechanismRunner::Part> parts;
    for (int i = 0; i < 4; ++i) parts.push_back({&sequences[i], &rows[i], 80, &outs[i]});
    ASSERT_TRUE(runner.Step(parts).ok());
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(SameBits(outs[i], RunSequence(rows[i], {options[i]}))) << i;
  }
}

// Keys all but orthogonal to the query: every weight is near 1/2, while the products that the state
// adds up are large. The result loses digits, but stays a result.
TEST_P(TaylorShiftTest, OutputsStayFiniteWhereTheStateCancels) {
  const AttentionGeometry g{1, 1, 1, 16, std::nullopt, GetParam()};
  for (float tau : {1.0f, 30.0f, 1000.0f, 1e5f, 1e8f}) {
    AttentionRows rows = RandomRows(g, 400, 5);
    for (int64_t i = 0; i < 400; ++i) {
      float* q = rows.row(0, i);
      std::fill_n(q, 16, 1.0f);
      q[16] -= std::accumulate(q + 16, q + 32, 0.0f) + 1.0f / tau;
    }
    RunOptions options{TaylorShift(TaylorForm::kRecurrent), 64};
    options.tau = {tau};
    for (float x : RunSequence(rows, options)) ASSERT_TRUE(std::isfinite(x)) << "tau " << tau;
  }
}

TEST_P(TaylorShiftTest, ZeroQueriesAndKeysGiveTheMean) {
  const AttentionGeometry g{1, 1, 1, 8, std::nullopt, GetParam()};
  AttentionRows rows = RandomRows(g, 200, 6);
  for (int64_t i = 0; i < 200; ++i) {
    std::fill_n(rows.row(0, i), 16, 0.0f);
    std::fill_n(rows.row(0, i) + 16, 8, 0.75f);
  }
  for (TaylorForm form : kForms) {
    const auto plain = RunSequence(rows, {TaylorShift(form, TaylorVariant::kPlain), 64});
    for (float x : plain) ASSERT_NEAR(x, 0.75f, 1e-6);
    const auto normalized = RunSequence(rows, {TaylorShift(form), 64});
    for (int64_t i = 0; i < 200; ++i) {
      const double scale = std::sqrt(static_cast<double>(i + 1) / 8);
      ASSERT_NEAR(normalized[i * 8], 0.75 * scale, 1e-5);
    }
  }
}

TEST_P(TaylorShiftTest, PagesGoOnceTheStateHoldsThem) {
  const AttentionGeometry g = geometry();
  const int64_t switch_tokens = *TaylorSwitchTokens(g, {});
  const AttentionRows rows = RandomRows(g, 600, 7);
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  {
    SequenceCache sequence = NewSequence(TaylorShift(), 600);
    std::vector<float> out;
    while (sequence.n_tokens < 600) {
      ASSERT_TRUE(runner.Step({{&sequence, &rows, 20, &out}}).ok());
      const bool recurrent = sequence.n_tokens > switch_tokens;
      EXPECT_EQ(sequence.state.As<TaylorState>().sums != nullptr, recurrent);
      const int64_t first_held = recurrent ? (sequence.n_tokens - 1) / 64 : 0;
      for (size_t page = 0; page < sequence.pages.size(); ++page) {
        EXPECT_EQ(static_cast<bool>(sequence.pages[page]), static_cast<int64_t>(page) >= first_held)
            << "page " << page << " at " << sequence.n_tokens;
      }
      const int64_t n_held = static_cast<int64_t>(sequence.pages.size()) - first_held;
      EXPECT_EQ(runner.cache().used_bytes(),
                n_held * PageBytes(g) + (recurrent ? TaylorSlabBytes(g) : 0));
    }
  }
  EXPECT_EQ(runner.cache().used_bytes(), 0);
}

TEST_P(TaylorShiftTest, ASequenceThatMayPassItsSwitchFoldsOnTheWayThere) {
  const AttentionGeometry g = geometry(2);
  const int64_t n_switch = *TaylorSwitchTokens(g, {});
  const AttentionRows rows = RandomRows(g, n_switch + 70, 3);
  std::vector<float> late, early;
  for (const bool is_early : {false, true}) {
    MechanismRunner runner(g, Mechanism::kTaylorShift);
    SequenceCache sequence = NewSequence(TaylorShift(), 1);
    if (is_early) sequence.n_final_tokens = rows.n_tokens;
    for (int64_t n = 1; n <= rows.n_tokens; ++n) {
      const auto& state = sequence.state.As<TaylorState>();
      const int64_t n_before = state.n_folded_tokens;
      ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, is_early ? &early : &late}}).ok());
      const int64_t n_folded = state.n_folded_tokens - n_before;
      EXPECT_TRUE(!is_early || n_folded <= 2 * kPageTokens) << n_folded << " in one step, at " << n;
      EXPECT_TRUE(n > n_switch || state.n_state_tokens == 0) << n;
      EXPECT_TRUE(n > n_switch / 2 || state.sums == nullptr) << n;
      EXPECT_TRUE(n != n_switch || state.n_folded_tokens == (is_early ? n_switch : 0));
      EXPECT_LE(state.n_folded_tokens, n);
    }
  }
  EXPECT_TRUE(SameBits(early, late));
}

TEST_P(TaylorShiftTest, ASequenceThatEndsBeforeItsSwitchHasNoState) {
  const AttentionGeometry g = geometry();
  const int64_t n_switch = *TaylorSwitchTokens(g, {});
  const AttentionRows rows = RandomRows(g, n_switch, 3);
  std::vector<float> out;
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  SequenceCache sequence = NewSequence(TaylorShift(), 1);
  sequence.n_final_tokens = n_switch;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, n_switch, &out}}).ok());
  EXPECT_EQ(sequence.state.As<TaylorState>().sums, nullptr);
  const auto bound = [&](int64_t n_final) {
    return runner.mechanism().BoundBytes(TaylorShift(), {1, n_switch, 1, n_final});
  };
  EXPECT_EQ(bound(n_switch), bound(0));
  EXPECT_GT(bound(n_switch + 1), bound(0));
}

TEST_P(TaylorShiftTest, BoundHasAStateOnlyWhereTheSequenceMayReachIt) {
  const AttentionGeometry g = geometry();
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  const auto bound = [&](TaylorForm form, int64_t n_tokens) {
    return runner.mechanism().BoundBytes(TaylorShift(form), {1, n_tokens, 64});
  };
  EXPECT_EQ(bound(TaylorForm::kDirect, 1000), 16 * PageBytes(g));
  EXPECT_EQ(bound(TaylorForm::kRecurrent, 64), PageBytes(g));
  EXPECT_EQ(bound(TaylorForm::kRecurrent, 65), 2 * PageBytes(g) + TaylorSlabBytes(g));
  const int64_t switch_tokens = *TaylorSwitchTokens(g, {});
  EXPECT_EQ(bound(TaylorForm::kAuto, switch_tokens), switch_tokens / 64 * PageBytes(g));
  EXPECT_EQ(bound(TaylorForm::kAuto, 100000),
            (switch_tokens / 64 + 1) * PageBytes(g) + TaylorSlabBytes(g));
}

// The crossovers of docs/taylorshift.md: decode where both forms cost the same, prefill at about
// twice that.
TEST_P(TaylorShiftTest, WorkGrowsUntilTheSwitchAndNotAfterwards) {
  const AttentionGeometry g{2, 4, 4, 32, std::nullopt, StorageType::kBFloat16};
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  const auto work = [&](TaylorForm form, int64_t n) {
    return runner.mechanism().Work(TaylorShift(form), n);
  };
  const double state = 2 * 4 * 561.0 * 33, chunk = 2 * 4 * 64.0 * 32;
  EXPECT_EQ(work(TaylorForm::kDirect, 1000).decode, 2 * 4 * 2 * 1000.0 * 32);
  EXPECT_EQ(work(TaylorForm::kAuto, 640).decode, work(TaylorForm::kDirect, 640).decode);
  EXPECT_EQ(work(TaylorForm::kAuto, 641).decode, 2 * state + chunk);
  EXPECT_EQ(work(TaylorForm::kAuto, 100000).decode, 2 * state + chunk);
  EXPECT_LT(work(TaylorForm::kDirect, 1100).prefill, work(TaylorForm::kRecurrent, 1100).prefill);
  EXPECT_GT(work(TaylorForm::kDirect, 1280).prefill, work(TaylorForm::kRecurrent, 1280).prefill);
}

// Another sequence's leftovers in a page are never read, not even when they are not numbers.
TEST_P(TaylorShiftTest, LeftoversInAPageAreInvisible) {
  const AttentionGeometry g = geometry();
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  AttentionRows poison = RandomRows(g, 300, 1);
  std::fill(poison.data.begin(), poison.data.end(), std::nanf(""));
  {
    SequenceCache sequence = NewSequence(TaylorShift(), 300);
    std::vector<float> out;
    ASSERT_TRUE(runner.Step({{&sequence, &poison, 300, &out}}).ok());
  }
  const AttentionRows rows = RandomRows(g, 290, 2);
  SequenceCache sequence = NewSequence(TaylorShift(), 290);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 290, &out}}).ok());
  EXPECT_TRUE(SameBits(out, RunSequence(rows, {TaylorShift()})));
}

TEST_P(TaylorShiftTest, IsNotAvailableUnderASlidingWindow) {
  AttentionGeometry g = geometry();
  g.sliding_window = 32;
  MechanismRunner runner(g, Mechanism::kTaylorShift);
  const absl::Status status = runner.mechanism().CheckAvailable(TaylorShift());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "attention.mechanism: taylorshift is not available for a model with a sliding window "
            "of 32 tokens");
}

}  // namespace
}  // namespace lowkey
