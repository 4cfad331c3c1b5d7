// TaylorShift with keys narrower than values, and with a window of exact weights.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/attention/taylorshift/host.h"
#include "tests/engine/attention/attention_testing.h"
#include "tests/engine/attention/taylorshift/reference.h"

namespace lowkey {
namespace {

struct Shape {
  int64_t score_dim = 0, head_dim = 0;
  int64_t window_tokens = 0;
};

constexpr Shape kShapes[] = {{8, 20, 0},    {16, 20, 64}, {20, 20, 128}, {16, 64, 64}, {32, 16, 0},
                             {32, 16, 192}, {2, 8, 64},   {10, 15, 128}, {32, 32, 64}};
constexpr TaylorForm kForms[] = {TaylorForm::kDirect, TaylorForm::kRecurrent, TaylorForm::kAuto};
constexpr TaylorVariant kVariants[] = {TaylorVariant::kNormalized, TaylorVariant::kPlain};

std::vector<float> Temperatures(const AttentionGeometry& g, float first) {
  std::vector<float> tau;
  for (int64_t i = 0; i < g.n_layers * g.n_heads; ++i) {
    tau.push_back(first + 0.7f * static_cast<float>(i % 5));
  }
  return tau;
}

RunOptions OptionsOf(const TaylorModel& model, TaylorForm form, int64_t chunk_tokens = 96) {
  RunOptions options{TaylorShift(form, model.variant), chunk_tokens};
  options.tau = model.far;
  options.tau_window = model.near;
  options.window_tokens = model.window_tokens;
  return options;
}

class TaylorWindowTest : public testing::TestWithParam<StorageType> {
 protected:
  AttentionGeometry Geometry(const Shape& shape, int64_t n_layers = 1) const {
    AttentionGeometry g{n_layers, 4, 2, shape.head_dim, std::nullopt, GetParam()};
    g.score_dim = shape.score_dim;
    return g;
  }
  static TaylorModel Model(const AttentionGeometry& g, const Shape& shape, TaylorVariant variant) {
    return {variant, Temperatures(g, 0.5f), Temperatures(g, 1.5f), shape.window_tokens};
  }
  // A unit key's element may round to the other bf16 where the norms differ in their last bit.
  double Tolerance(TaylorVariant variant) const {
    const bool rounds = GetParam() == StorageType::kBFloat16;
    return rounds && variant == TaylorVariant::kNormalized ? 2e-3 : 3e-5;
  }
  static std::string Describe(const Shape& s, TaylorVariant variant, TaylorForm form) {
    return testing::PrintToString(s.score_dim) + " of " + testing::PrintToString(s.head_dim) +
           ", window " + testing::PrintToString(s.window_tokens) + ", " +
           std::string(NameOf(variant)) + ", " + std::string(NameOf(form));
  }
};

INSTANTIATE_TEST_SUITE_P(Caches, TaylorWindowTest,
                         testing::Values(StorageType::kFloat32, StorageType::kBFloat16),
                         [](const auto& info) {
                           return info.param == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(TaylorWindowTest, TheReferencesFormsAreEqual) {
  for (const Shape& shape : kShapes) {
    const AttentionGeometry g = Geometry(shape);
    const AttentionRows rows = RandomRows(g, 330, 1);
    for (TaylorVariant variant : kVariants) {
      const TaylorModel model = Model(g, shape, variant);
      const auto direct = ReferenceTaylorShift(rows, 0, model);
      const auto by_state = ReferenceTaylorShiftByState(rows, 0, model);
      double worst = 0;
      for (size_t i = 0; i < direct.size(); ++i) {
        worst = std::max(worst, std::fabs(direct[i] - by_state[i]));
      }
      EXPECT_LE(worst, 1e-11) << Describe(shape, variant, TaylorForm::kRecurrent);
    }
  }
}

TEST_P(TaylorWindowTest, MatchesTheReferenceAtEveryShape) {
  for (const Shape& shape : kShapes) {
    const AttentionGeometry g = Geometry(shape, 2);
    const int64_t n = 450;
    const AttentionRows rows = RandomRows(g, n, 1);
    for (TaylorVariant variant : kVariants) {
      const TaylorModel model = Model(g, shape, variant);
      const std::vector<double> want = ReferenceTaylorShift(rows, 1, model);
      for (TaylorForm form : kForms) {
        const std::vector<float> out = RunSequence(rows, OptionsOf(model, form));
        EXPECT_LE(MaxDifference(out.data() + n * g.out_dim(), want), Tolerance(variant))
            << Describe(shape, variant, form);
      }
    }
  }
}

TEST_P(TaylorWindowTest, MatchesTheReferenceAtEveryLength) {
  const Shape shape{8, 16, 128};
  const AttentionGeometry g = Geometry(shape);
  const TaylorModel model = Model(g, shape, TaylorVariant::kNormalized);
  for (int64_t n : {1, 63, 64, 65, 128, 191, 192, 193, 255, 256, 257, 321}) {
    const AttentionRows rows = RandomRows(g, n, 2);
    const std::vector<double> want = ReferenceTaylorShift(rows, 0, model);
    for (TaylorForm form : kForms) {
      const std::vector<float> out = RunSequence(rows, OptionsOf(model, form, 1000));
      EXPECT_LE(MaxDifference(out.data(), want), Tolerance(model.variant))
          << n << " tokens, " << NameOf(form);
    }
  }
}

TEST_P(TaylorWindowTest, TheWindowsTemperatureIsTheFarOneUnlessGiven) {
  const Shape shape{8, 16, 64};
  const AttentionGeometry g = Geometry(shape);
  const AttentionRows rows = RandomRows(g, 300, 3);
  TaylorModel model = Model(g, shape, TaylorVariant::kNormalized);
  const auto apart = RunSequence(rows, OptionsOf(model, TaylorForm::kAuto));
  model.near = {};
  const auto absent = RunSequence(rows, OptionsOf(model, TaylorForm::kAuto));
  model.near = model.far;
  EXPECT_TRUE(SameBits(absent, RunSequence(rows, OptionsOf(model, TaylorForm::kAuto))));
  EXPECT_FALSE(SameBits(absent, apart));
}

// Every token is near: softmax attention over scores of unit vectors, or of q . k / sqrt(e).
TEST_P(TaylorWindowTest, AWindowThatHoldsAllIsSoftmax) {
  const Shape shape{16, 16, 512};
  const AttentionGeometry g = Geometry(shape);
  const AttentionRows rows = RandomRows(g, 400, 4);
  const TaylorModel model = Model(g, shape, TaylorVariant::kPlain);
  const auto out = RunSequence(rows, OptionsOf(model, TaylorForm::kAuto));
  EXPECT_LE(MaxDifference(out.data(), ReferenceStandard(rows, 0)), 1e-5);
}

// Weights exp(s) of plain scores in the hundreds, of either sign, beside far weights near s^2 / 2.
TEST_P(TaylorWindowTest, HugePlainScoresStayFinite) {
  const Shape shape{8, 16, 64};
  const AttentionGeometry g = Geometry(shape);
  for (float size : {30.0f, 1000.0f}) {
    for (float sign : {1.0f, -1.0f}) {
      AttentionRows rows = RandomRows(g, 400, 5);
      for (int64_t i = 0; i < 400; ++i) {
        std::fill_n(rows.row(0, i), g.q_dim(), size);
        for (int64_t j = 0; j < g.k_dim(); ++j) {
          float& k = rows.row(0, i)[g.q_dim() + j];
          k = sign * (1 + 0.1f * k);
        }
      }
      const TaylorModel model = Model(g, shape, TaylorVariant::kPlain);
      const std::vector<double> want = ReferenceTaylorShift(rows, 0, model);
      const auto out = RunSequence(rows, OptionsOf(model, TaylorForm::kDirect));
      for (float x : out) ASSERT_TRUE(std::isfinite(x)) << size * sign;
      EXPECT_LE(MaxDifference(out.data(), want), 0.02) << size * sign;
      for (float x : RunSequence(rows, OptionsOf(model, TaylorForm::kRecurrent))) {
        ASSERT_TRUE(std::isfinite(x)) << size * sign;
      }
    }
  }
}

TEST_P(TaylorWindowTest, LongSequencesKeepTheFormsTogether) {
  const Shape shape{8, 16, 128};
  AttentionGeometry g{1, 2, 1, shape.head_dim, std::nullopt, GetParam()};
  g.score_dim = shape.score_dim;
  const AttentionRows rows = RandomRows(g, 8192, 4);
  const TaylorModel model = Model(g, shape, TaylorVariant::kNormalized);
  const auto direct = RunSequence(rows, OptionsOf(model, TaylorForm::kDirect, 512));
  const auto recurrent = RunSequence(rows, OptionsOf(model, TaylorForm::kRecurrent, 512));
  EXPECT_LE(MaxDifference(recurrent.data(), {direct.begin(), direct.end()}), 1e-4);
  EXPECT_FALSE(SameBits(direct, recurrent));  // or one form ran twice
}

TEST_P(TaylorWindowTest, PagesOfTheWindowStayAndOlderOnesGo) {
  const Shape shape{8, 20, 128};
  const AttentionGeometry g = Geometry(shape);
  MechanismRunner::Options options;
  options.window_tokens = shape.window_tokens;
  MechanismRunner runner(g, Mechanism::kTaylorShift, options);
  const int64_t n_switch = *TaylorSwitchTokens(g, {}, shape.window_tokens);
  EXPECT_EQ(n_switch % 64, 0);
  const AttentionRows rows = RandomRows(g, 600, 7);
  {
    SequenceCache sequence = NewSequence(TaylorShift(), 600);
    std::vector<float> out;
    while (sequence.n_tokens < 600) {
      ASSERT_TRUE(runner.Step({{&sequence, &rows, 20, &out}}).ok());
      const auto& state = sequence.state.As<TaylorState>();
      const bool recurrent = sequence.n_tokens > n_switch;
      const int64_t first_held = recurrent ? (sequence.n_tokens - 1) / 64 - 2 : 0;
      EXPECT_EQ(state.n_state_tokens, 64 * first_held);
      EXPECT_EQ(state.sums != nullptr, recurrent);
      const auto n_pages = static_cast<int64_t>(sequence.pages.size());
      for (int64_t page = 0; page < n_pages; ++page) {
        EXPECT_EQ(static_cast<bool>(sequence.pages[page]), page >= first_held);
      }
      EXPECT_EQ(runner.cache().used_bytes(),
                (n_pages - first_held) * PageBytes(g) + (recurrent ? TaylorSlabBytes(g) : 0));
    }
    const int64_t held = runner.mechanism().HeldBytes(TaylorShift(), 600);
    EXPECT_EQ(runner.cache().used_bytes(), held);
  }
  EXPECT_EQ(runner.cache().used_bytes(), 0);
}

TEST_P(TaylorWindowTest, ASequenceFoldsOnTheWayToItsSwitch) {
  const Shape shape{12, 16, 128};
  const AttentionGeometry g = Geometry(shape);
  MechanismRunner::Options options;
  options.window_tokens = shape.window_tokens;
  const int64_t n_switch = *TaylorSwitchTokens(g, {}, shape.window_tokens);
  const AttentionRows rows = RandomRows(g, n_switch + 70, 3);
  std::vector<float> late, early;
  for (const bool is_early : {false, true}) {
    MechanismRunner runner(g, Mechanism::kTaylorShift, options);
    SequenceCache sequence = NewSequence(TaylorShift(), 1);
    if (is_early) sequence.n_final_tokens = rows.n_tokens;
    const int64_t most =
        runner.mechanism().BoundBytes(TaylorShift(), {1, rows.n_tokens, 1, rows.n_tokens});
    for (int64_t n = 1; n <= rows.n_tokens; ++n) {
      ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, is_early ? &early : &late}}).ok());
      const auto& state = sequence.state.As<TaylorState>();
      if (n == n_switch) {
        EXPECT_EQ(state.n_folded_tokens, is_early ? n_switch - 128 : 0);
      }
      EXPECT_LE(runner.cache().used_bytes(), most);
    }
  }
  EXPECT_TRUE(SameBits(early, late));
}

// A sequence that continues from another's prefix has the bits of one that computed it.
TEST_P(TaylorWindowTest, PrefixesAreContinued) {
  const Shape shape{8, 16, 64};
  const AttentionGeometry g = Geometry(shape);
  MechanismRunner::Options options;
  options.window_tokens = shape.window_tokens;
  MechanismRunner runner(g, Mechanism::kTaylorShift, options);
  const AttentionRows rows = RandomRows(g, 500, 9);
  for (int64_t n_first : {128, 250, 320, 400}) {
    SequenceCache first = NewSequence(TaylorShift(), n_first);
    std::vector<float> out;
    ASSERT_TRUE(runner.Step({{&first, &rows, n_first, &out}}).ok());
    const int64_t n_shared = n_first / 64 * 64;
    auto second = runner.mechanism().Prefix(first, n_first, n_shared);
    ASSERT_TRUE(second.has_value()) << n_first;
    second->options = first.options;
    std::vector<float> continued;
    ASSERT_TRUE(runner.Step({{&*second, &rows, 500 - n_shared, &continued}}).ok());
    ASSERT_TRUE(runner.Step({{&first, &rows, 500 - n_first, &out}}).ok());
    std::copy_n(out.begin(), n_shared * g.out_dim(), continued.begin());
    EXPECT_TRUE(SameBits(continued, out)) << n_first;
    if (n_first == 400) {
      EXPECT_FALSE(runner.mechanism().Prefix(first, 500, 256).has_value());
    }
  }
}

TEST_P(TaylorWindowTest, OnlyTheTrainedVariantIsServed) {
  const AttentionGeometry g = Geometry({8, 16, 64});
  MechanismWeights weights = TestWeights(g, Mechanism::kEfficient);
  weights.trained_variant = TaylorVariant::kPlain;
  MechanismRunner runner(g, Mechanism::kTaylorShift, weights);
  const auto check = [&](TaylorVariant variant) {
    return runner.mechanism().CheckAvailable(TaylorShift(TaylorForm::kAuto, variant));
  };
  EXPECT_TRUE(check(TaylorVariant::kAuto).ok());
  EXPECT_TRUE(check(TaylorVariant::kPlain).ok());
  EXPECT_EQ(check(TaylorVariant::kNormalized).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(check(TaylorVariant::kNormalized).message(),
            "attention.variant: normalized, expected plain, which this model's weights were "
            "trained for");
  const AttentionRows rows = RandomRows(g, 100, 1);
  std::vector<float> outs[2];
  for (int i = 0; i < 2; ++i) {
    SequenceCache sequence = NewSequence(
        TaylorShift(TaylorForm::kAuto, i == 0 ? TaylorVariant::kAuto : TaylorVariant::kPlain), 100);
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 100, &outs[i]}}).ok());
  }
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
}

TEST(TaylorSwitchTokens, FallsWithTheScoresDimensionAndRisesByTheWindow) {
  AttentionGeometry g{1, 4, 4, 64, std::nullopt, StorageType::kBFloat16};
  EXPECT_EQ(TaylorSwitchTokens(g, {}), 2240);
  g.score_dim = 16;
  EXPECT_EQ(TaylorShape(g).n_features, 153);
  EXPECT_EQ(TaylorSwitchTokens(g, {}), 256);  // 153 * 65 * 4 / (80 * 2) = 249
  EXPECT_EQ(TaylorSwitchTokens(g, {}, 512), 768);
  EXPECT_EQ(TaylorSwitchTokens(g, {TaylorForm::kRecurrent}, 512), 576);
  EXPECT_EQ(TaylorSwitchTokens(g, {TaylorForm::kDirect}, 512), std::nullopt);
}

TEST(TaylorWork, CountsNarrowKeysAndTheWindow) {
  AttentionGeometry g{2, 4, 4, 64, std::nullopt, StorageType::kBFloat16};
  g.score_dim = 16;
  MechanismRunner::Options options;
  options.window_tokens = 128;
  MechanismRunner runner(g, Mechanism::kTaylorShift, options);
  const auto work = [&](TaylorForm form, int64_t n) {
    return runner.mechanism().Work(TaylorShift(form), n);
  };
  const double heads = 2 * 4, state = heads * 153 * 65, token = heads * 80;
  EXPECT_EQ(work(TaylorForm::kDirect, 1000).decode, token * 1000);
  EXPECT_EQ(work(TaylorForm::kDirect, 1000).prefill, token * 1000 * 1000 / 2);
  EXPECT_EQ(work(TaylorForm::kAuto, 10000).decode, 2 * state + token * (128 + 32));
  EXPECT_EQ(runner.mechanism().HeldBytes(TaylorShift(), 10000),
            TaylorSlabBytes(g) + 3 * PageBytes(g));
}

}  // namespace
}  // namespace lowkey
