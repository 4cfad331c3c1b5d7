// What `lowkey crossover` computes, prints and reads back.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/random_bundle.h"
#include "client/report/page.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/measure_rates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/profile.h"
#include "tests/testing/emulated/emulated_device.h"
#include "tests/testing/tiny_model.h"
#include "tools/crossover_report.h"
#include "tools/crossover_theory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// The paper's Table 2 (Nauen et al. 2024).
TEST(Theory, CrossoversAreThoseOfThePapersTable) {
  const int64_t dims[] = {8, 16, 32, 64, 128};
  const double speed[] = {73, 273, 1057, 4161, 16513}, memory[] = {47, 159, 574, 2174, 8446};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(std::ceil(TaylorSpeedCrossover(dims[i])), speed[i]);
    EXPECT_EQ(std::ceil(TaylorMemoryCrossover(dims[i])), memory[i]);
  }
}

TEST(Theory, CausalCrossoversAreThoseOfTheReference) {
  EXPECT_NEAR(CausalPrefillCrossover({32}), 1221, 1);
  EXPECT_NEAR(CausalDecodeCrossover({32}), 579, 1);
  EXPECT_NEAR(CausalMemoryCrossover({32}), 579, 1);
  EXPECT_LT(CausalDecodeCrossover({32, 4}), CausalDecodeCrossover({32, 1}));
}

TEST(Theory, NarrowScoresCrossEarlierAndAWindowLater) {
  EXPECT_EQ(TaylorFeatures(16), 153);
  EXPECT_EQ(TaylorStateNumbers({64, 1, 16}), 153 * 65);
  EXPECT_EQ(TaylorStateNumbers({64}), 2145 * 65);
  EXPECT_DOUBLE_EQ(CausalDecodeCrossover({64, 1, 16}), 2 * 153 * 65 / 80.0);
  EXPECT_DOUBLE_EQ(CausalMemoryCrossover({64, 1, 16}), 2 * 153 * 65 / 80.0);
  EXPECT_DOUBLE_EQ(CausalPrefillCrossover({64, 1, 16}), 4 * 153 * 65 / 80.0 + 64);
  EXPECT_DOUBLE_EQ(CausalDecodeCrossover({64, 4, 16, 512}), 1.25 * 153 * 65 / 80.0 + 512);
}

TEST(Theory, PrintsAModelsSplitsAndScoreDimensions) {
  ModelConfig config;
  config.hidden_dim = 576;
  config.n_heads = 9;
  config.n_kv_heads = 3;
  config.head_dim = 64;
  config.score_dim = 16;
  const std::string text = ModelTheoryText(config, 128);
  for (const char* part : {"Heads against dimension", "4161", "2174", "139425", "9945",
                           "16 (the model's)", "window 128"}) {
    EXPECT_THAT(text, HasSubstr(part)) << text;
  }
}

TEST(Theory, PrintsEveryMechanismsOperations) {
  const std::string text = TheoryText();
  for (const char* part : {"16513", "8446", "optimised    3 D^2", "super"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Profile, SurvivesItsJson) {
  SelectionProfile profile;
  profile.linear = {{1, 2e10}, {512, 4.5e10}};
  profile.rates["standard"] = {{512, 3e10, 8e9}};
  profile.rates["efficient"] = {{512, 2.5e10, 1e9}, {1024, 2e10, 9e8}};
  const auto read = ParseProfile(ProfileJson(profile), "profile.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, "profile.json");
  EXPECT_EQ(read->LinearRateOf(1), 2e10);
  EXPECT_EQ(read->LinearRateOf(512), 4.5e10);
  EXPECT_EQ(read->rates.size(), 2u);
  EXPECT_EQ(read->rates.at("efficient")[1].n_tokens, 1024);
  EXPECT_EQ(read->rates.at("efficient")[1].prefill, 2e10);
  EXPECT_EQ(read->rates.at("efficient")[1].decode, 9e8);
}

TEST(Profile, WithoutRatesIsReadToo) {
  const auto read = ParseProfile(ProfileJson({}), "profile.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rates.empty());
}

TEST(Profile, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", R"({"format": 2, "linear": [{"rows": 1, "rate": 1e9}], "rates": {}})",
        R"({"format": 3, "rates": {}})", R"({"format": 3, "linear": 1e9, "rates": {}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": 1e9}]})",
        R"({"format": 3, "linear": [], "rates": {}})",
        R"({"format": 3, "linear": [1], "rates": {}})",
        R"({"format": 3, "linear": [{"rows": 0, "rate": 1e9}], "rates": {}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": -1}], "rates": {}})",
        R"({"format": 3, "linear": [{"rows": 2, "rate": 1e9}, {"rows": 1, "rate": 1e9}],
            "rates": {}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": 1e9}], "rates": {"standard": []}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": 1e9}], "rates": {"standard": [3]}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": 1e9}],
            "rates": {"standard": [{"tokens": 512, "prefill": 1e9}]}})",
        R"({"format": 3, "linear": [{"rows": 1, "rate": 1e9}],
            "rates": {"standard": [{"tokens": 2, "prefill": 1e9, "decode": 1e9},
                                   {"tokens": 2, "prefill": 1e9, "decode": 1e9}]}})"}) {
    const absl::Status status = ParseProfile(text, "profile.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("profile.json")) << text;
  }
}

MechanismRates Line(Mechanism id, const std::vector<double>& decode_seconds) {
  MechanismRates m;
  m.options.mechanism = id;
  for (size_t i = 0; i < decode_seconds.size(); ++i) {
    RatePoint& p = m.points.emplace_back();
    p.n_tokens = static_cast<int64_t>(1000 * (i + 1));
    p.prefill_seconds = p.decode_seconds = decode_seconds[i];
    p.cache_bytes = static_cast<int64_t>(decode_seconds[i] * 1e6);
    p.decode_work = p.prefill_work = 1e6;
  }
  return m;
}

CostCurve Curve(const std::vector<double>& costs) {
  CostCurve curve;
  for (double cost : costs)
    curve.emplace_back(1000.0 * static_cast<double>(curve.size() + 1), cost);
  return curve;
}

TEST(MeasuredCrossover, LiesBetweenTheLengthsAroundIt) {
  const auto at = [](const std::vector<double>& costs) {
    return MeasuredCrossover(Curve({1, 2, 3, 4}), Curve(costs));
  };
  EXPECT_EQ(at({2.5, 2.5, 2.5, 2.5}), 2500);
  EXPECT_EQ(at({0.5, 1, 1, 1}), 1000);
  EXPECT_EQ(at({5, 5, 5, 5}), std::nullopt);
  EXPECT_EQ(at({1, 2, 3, 1}), 4000) << "no length at which both cost the same";
  EXPECT_EQ(at({1.5, 1.5}), 1500) << "the lengths that both have";
}

TEST(MeasuredCrossover, HoldsForEveryLongerLength) {
  const auto at = [](const std::vector<double>& costs) {
    return MeasuredCrossover(Curve({1, 2, 3, 4}), Curve(costs));
  };
  EXPECT_EQ(at({0.5, 3, 2, 2}), 2500) << "less at 1000, but more at 2000";
  EXPECT_EQ(at({0.5, 1, 1, 5}), std::nullopt) << "more at the longest";
}

MeasuredRates TwoMechanisms(const std::vector<double>& seconds) {
  MeasuredRates rates;
  rates.mechanisms = {Line(Mechanism::kStandard, {1, 2, 3, 4}),
                      Line(Mechanism::kEfficient, seconds)};
  return rates;
}

TEST(Report, NamesNoCrossoverThatItsTableContradicts) {
  const std::string text = RatesText(TwoMechanisms({0.5, 3, 2.0001, 2}));
  EXPECT_THAT(text, HasSubstr("2500"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("  1000  1000  1000")));
  EXPECT_THAT(RatesText(TwoMechanisms({0.5, 1, 1, 5})), HasSubstr("-       -      -"));
  EXPECT_THAT(RatesText(TwoMechanisms({0.00012, 0.00012, 1, 1})), HasSubstr("0.00012"))
      << "enough digits to compare";
}

TEST(Report, ChartsMarkTheCrossoversOfTheTables) {
  const auto report = RatesReport(TwoMechanisms({2.5, 2.5, 2.5, 2.5}), "a model", "avx2");
  EXPECT_THAT(report["machine"].get<std::string>(), HasSubstr(", avx2"));
  ASSERT_EQ(report["charts"].size(), 3u);
  for (const auto& chart : report["charts"]) {
    EXPECT_EQ(chart["series"][1]["crossover"], 2500);
    EXPECT_FALSE(chart["series"][0].contains("crossover"));
  }
  EXPECT_EQ(report["charts"][0]["series"][1]["points"][3], nlohmann::ordered_json({4000.0, 2.5}));
  EXPECT_EQ(report["tables"].size(), 3u);
  EXPECT_EQ(report["tables"][2]["rows"][0][1], "2500");
}

TEST(Report, IsAProfileToo) {
  MeasuredRates rates = TwoMechanisms({1, 1, 1, 1});
  rates.profile.rates["efficient"] = {{512, 2.5e10, 1e9}};
  const auto read = ParseProfile(ReportJson(RatesReport(rates, "a", "b")), "r.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rates.at("efficient")[0].decode, 1e9);
}

class MeasureRatesTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OnADevice, MeasureRatesTest, testing::Bool());

TEST_P(MeasureRatesTest, MeasuresEveryMechanismThatTheModelHas) {
  const TinyModel model;
  RandomBundleOptions bundle{TinyConfig(), {{.mechanism = Mechanism::kEfficient}}, 1};
  ASSERT_TRUE(WriteRandomBundle(model.path(), bundle).ok());
  RateOptions options;
  options.lengths = {64, 600};
  options.n_decode_runs = 3;
  if (GetParam()) options.engine.device = std::make_shared<EmulatedDevice>();
  for (Mechanism id :
       {Mechanism::kStandard, Mechanism::kAtp, Mechanism::kEfficient, Mechanism::kLasso}) {
    options.mechanisms.emplace_back().mechanism = id;
  }
  const auto measured = MeasureRates(*OpenCheckpoint(model.path()).value(), options, nullptr);
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->mechanisms.size(), 3u);  // no weights for lasso
  for (const MechanismRates& m : measured->mechanisms) {
    ASSERT_EQ(m.points.size(), 2u);
    EXPECT_GT(m.points[1].prefill_seconds, 0);
    EXPECT_GT(m.points[1].decode_seconds, 0);
    EXPECT_GT(m.points[1].cache_bytes, m.points[0].cache_bytes);
    const std::vector<AttentionRate>& rates = measured->profile.rates.at(AttentionLabel(m.options));
    ASSERT_EQ(rates.size(), 2u);
    EXPECT_EQ(rates[1].n_tokens, 600);
    EXPECT_GT(rates[1].decode, 0);
  }
  options.lengths = {128, 64};
  EXPECT_EQ(MeasureRates(*OpenCheckpoint(model.path()).value(), options, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey
