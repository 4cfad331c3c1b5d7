#include "tests/engine/kernels/ref/ref.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(RefGemm, WorkedExampleInBothLayouts) {
  const float a[] = {1, 2, 3, 4};
  const float row_major[] = {1, 2, 3, 4, 5, 6, 7, 8};  // [2, 4], panels of 2 columns
  const float packed[] = {1, 2, 5, 6, 3, 4, 7, 8};
  GemmArgs g{a, 2, row_major, 4, 2, nullptr, 4, 2, 4, 2};
  EXPECT_THAT(ref::Gemm(StorageType::kFloat32, 2, g), ElementsAre(11, 14, 17, 20, 23, 30, 37, 44));
  g.b = packed, g.b_row_stride = 2, g.b_panel_stride = 4;
  EXPECT_THAT(ref::Gemm(StorageType::kFloat32, 2, g), ElementsAre(11, 14, 17, 20, 23, 30, 37, 44));
}

TEST(RefGemm, AccumulatesOntoC) {
  const float a[] = {2}, b[] = {3, 4};
  float c[] = {10, 20};
  const GemmArgs g{a, 1, b, 2, 2, c, 2, 1, 2, 1, GemmArgs::Into::kAccumulate};
  EXPECT_THAT(ref::Gemm(StorageType::kFloat32, 2, g), ElementsAre(16, 28));
}

TEST(RefGemm, ReadsBf16) {
  const float a[] = {2};
  const uint16_t b[] = {0x3f80, 0xc040};  // 1, -3
  const GemmArgs g{a, 1, b, 2, 2, nullptr, 2, 1, 2, 1};
  EXPECT_THAT(ref::Gemm(StorageType::kBFloat16, 2, g), ElementsAre(2, -6));
}

TEST(RefDotRows, AddsToWhatIsThere) {
  const float a[] = {1, 2}, b[] = {3, 4, 5, 6};
  float out[] = {100, 200};
  EXPECT_THAT(ref::DotRows(StorageType::kFloat32, {a, 2, b, out, 2, 1, 2, 2}),
              ElementsAre(111, 217));
}

TEST(RefLinear, MultipliesByTheTranspose) {
  EXPECT_THAT(ref::Linear({1, 2, 3, 4, 5, 6}, {1, 10}, 2), ElementsAre(21, 43, 65));
}

TEST(RefRows, WorkedExamples) {
  EXPECT_THAT(ref::RmsNorm({3, 4}, {1, 2}, 0.0),
              Pointwise(DoubleNear(1e-12), {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)}));
  EXPECT_THAT(ref::SiluMul({0, 1}, {5, 2}),
              Pointwise(DoubleNear(1e-12), {0.0, 2 / (1 + std::exp(-1.0))}));
  EXPECT_THAT(ref::Rope({1, 2, 3, 4}, {0, 1}, {1, 0}), ElementsAre(-3, 2, 1, 4));
}

TEST(RefSoftmax, HiddenScoresWeighNothing) {
  const float hidden = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(ref::Softmax({1000, hidden, 1000}), ElementsAre(0.5, 0, 0.5));
}

TEST(RefToBf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(ref::ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ref::ToBf16(-2.0f), 0xc000);
  EXPECT_EQ(ref::ToBf16(1.0f + 0x1p-8f), 0x3f80);             // a tie: down to even
  EXPECT_EQ(ref::ToBf16(1.0f + 0x3p-8f), 0x3f82);             // a tie: up to even
  EXPECT_EQ(ref::ToBf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);  // above the tie
  EXPECT_EQ(ref::ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(ref::ToBf16(-0.0f), 0x8000);
  EXPECT_EQ(ref::ToBf16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(ref::ToBf16(std::numeric_limits<float>::quiet_NaN()) & 0x7fc0, 0x7fc0);
}

}  // namespace
}  // namespace lowkey
