#include "gtest/gtest.h"
#include "tests/engine/runtime/calibration/coded_model.h"
#include "tools/calibration/code_table.h"
#include "tools/calibration/sample.h"

namespace lowkey {
namespace {

TEST(CalibrationSample, HasTextsOfManyKinds) {
  const std::vector<std::string_view> texts = CalibrationSample();
  EXPECT_EQ(texts.size(), 9u);
  size_t n_bytes = 0;
  for (const std::string_view text : texts) {
    EXPECT_GT(text.size(), 3000u);
    EXPECT_LT(text.size(), 9000u);
    EXPECT_EQ(text.find('\f'), std::string_view::npos);
    EXPECT_TRUE(text.ends_with('\n'));
    n_bytes += text.size();
  }
  EXPECT_GT(n_bytes, 50000u);
}

TEST(CodeCurveJson, TradesBytesForDistortion) {
  const auto curve = CodeCurveJson(CodedModel().Calibrate()->prefixes);
  ASSERT_EQ(curve.size(), 10u);
  for (size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i]["bits"], curve[i - 1]["bits"]);
    EXPECT_GT(curve[i]["bytes_per_token"], curve[i - 1]["bytes_per_token"]);
    EXPECT_LT(curve[i]["distortion"], curve[i - 1]["distortion"]);
  }
  EXPECT_LT(curve[0]["distortion"], 0.5);
  // 32 numbers a token and layer, with 3 bits for the gain and the escape flag.
  EXPECT_NEAR(static_cast<double>(curve[3]["share_of_bf16"]), (2.45 + 3.0 / 32) / 16, 0.002);
}

}  // namespace
}  // namespace lowkey
