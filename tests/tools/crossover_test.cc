// What `lowkey crossover` computes, prints and reads back.
#include <cmath>
#include <string>
#include <vector>

#include "bench/random_bundle.h"
#include "engine/kernels/cuda/emulated/emulated_device.h"
#include "engine/runtime/calibrate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/profile.h"
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
  EXPECT_NEAR(CausalPrefillCrossover(32, 1), 1221, 1);
  EXPECT_NEAR(CausalDecodeCrossover(32, 1), 579, 1);
  EXPECT_NEAR(CausalMemoryCrossover(32), 579, 1);
  EXPECT_LT(CausalDecodeCrossover(32, 4), CausalDecodeCrossover(32, 1));
}

TEST(Theory, PrintsEveryMechanismsOperations) {
  const std::string text = TheoryText();
  for (const char* part : {"16513", "8446", "optimised    3 D^2", "super"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Profile, SurvivesItsJson) {
  SelectionProfile profile;
  profile.linear = 4.5e10;
  profile.mechanisms[Mechanism::kStandard] = {3e10, 8e9};
  profile.mechanisms[Mechanism::kEfficient] = {2.5e10, 1e9};
  const auto read = ParseProfile(ProfileJson(profile), "profile.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->linear, profile.linear);
  EXPECT_EQ(read->mechanisms.size(), 2u);
  EXPECT_EQ(read->RatesOf(Mechanism::kEfficient).decode, 1e9);
}

TEST(Profile, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", R"({"format": 2, "linear": 1e9, "mechanisms": {}})",
        R"({"format": 1, "mechanisms": {}})", R"({"format": 1, "linear": 1e9})",
        R"({"format": 1, "linear": -1, "mechanisms": {}})",
        R"({"format": 1, "linear": 1e9, "mechanisms": {"magic": {"prefill": 1e9, "decode": 1e9}}})",
        R"({"format": 1, "linear": 1e9, "mechanisms": {"standard": {"prefill": 1e9}}})",
        R"({"format": 1, "linear": 1e9, "mechanisms": {"standard": 3}})"}) {
    const absl::Status status = ParseProfile(text, "profile.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("profile.json")) << text;
  }
}

MechanismCalibration Line(Mechanism id, const std::vector<double>& decode_seconds) {
  MechanismCalibration m;
  m.options.mechanism = id;
  for (size_t i = 0; i < decode_seconds.size(); ++i) {
    CalibrationPoint& p = m.points.emplace_back();
    p.n_tokens = static_cast<int64_t>(1000 * (i + 1));
    p.prefill_seconds = p.decode_seconds = decode_seconds[i];
    p.cache_bytes = static_cast<int64_t>(decode_seconds[i] * 1e6);
    p.decode_work = p.prefill_work = 1e6;
  }
  return m;
}

TEST(MeasuredCrossover, LiesBetweenTheLengthsAroundIt) {
  const MechanismCalibration standard = Line(Mechanism::kStandard, {1, 2, 3, 4});
  const auto at = [&](const std::vector<double>& seconds) {
    return MeasuredCrossover(standard, Line(Mechanism::kEfficient, seconds),
                             &CalibrationPoint::decode_seconds);
  };
  EXPECT_EQ(at({2.5, 2.5, 2.5, 2.5}), 2500);
  EXPECT_EQ(at({0.5, 1, 1, 1}), 1000);
  EXPECT_EQ(at({5, 5, 5, 5}), std::nullopt);
}

TEST(Report, MarksCrossoversAndEscapesNames) {
  Calibration calibration;
  calibration.mechanisms = {Line(Mechanism::kStandard, {1, 2, 3, 4}),
                            Line(Mechanism::kEfficient, {2.5, 2.5, 2.5, 2.5})};
  EXPECT_THAT(CalibrationText(calibration), HasSubstr("2500"));
  const std::string html = CalibrationHtml(calibration, "a <b> & c");
  EXPECT_THAT(html, HasSubstr("a &lt;b&gt; &amp; c"));
  EXPECT_THAT(html, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("nan")));
}

class CalibrateTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OnADevice, CalibrateTest, testing::Bool());

TEST_P(CalibrateTest, MeasuresEveryMechanismThatTheModelHas) {
  const TinyModel model;
  RandomBundleOptions bundle{TinyConfig(), {{.mechanism = Mechanism::kEfficient}}, 1};
  ASSERT_TRUE(WriteRandomBundle(model.path(), bundle).ok());
  CalibrationOptions options;
  options.lengths = {64, 600};
  options.n_decode_runs = 3;
  if (GetParam()) options.engine.device = std::make_shared<EmulatedDevice>();
  for (Mechanism id :
       {Mechanism::kStandard, Mechanism::kAtp, Mechanism::kEfficient, Mechanism::kLasso}) {
    options.mechanisms.emplace_back().mechanism = id;
  }
  const auto calibration = Calibrate(model.path(), options, nullptr);
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  ASSERT_EQ(calibration->mechanisms.size(), 3u);  // no weights for lasso
  for (const MechanismCalibration& m : calibration->mechanisms) {
    ASSERT_EQ(m.points.size(), 2u);
    EXPECT_GT(m.points[1].prefill_seconds, 0);
    EXPECT_GT(m.points[1].decode_seconds, 0);
    EXPECT_GT(m.points[1].cache_bytes, m.points[0].cache_bytes);
    EXPECT_GT(calibration->profile.RatesOf(m.options.mechanism).decode, 0);
  }
  options.lengths = {128, 64};
  EXPECT_EQ(Calibrate(model.path(), options, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey
