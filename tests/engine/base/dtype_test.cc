#include "engine/base/dtype.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(DType, SizesAndNames) {
  EXPECT_EQ(DTypeBytes(DType::kF32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kI32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kI64), 8u);
  EXPECT_EQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_EQ(DTypeName(DType::kI64), "I64");
  EXPECT_EQ(DTypeName(DType::kQ4_0), "Q4_0");
  EXPECT_EQ(DTypeName(DType::kQ6_K), "Q6_K");
  EXPECT_EQ(DTypeBlockSize(DType::kI64), 1);
  EXPECT_EQ(DTypeBlockSize(DType::kQ8_0), 32);
  EXPECT_EQ(DTypeBytes(DType::kQ8_0), 34u);
  EXPECT_EQ(DTypeBlockSize(DType::kQ5_K), 256);
  EXPECT_EQ(DTypeName(DType::kMXFP4), "MXFP4");
  EXPECT_EQ(DTypeBytes(DType::kMXFP4), 17u);
  EXPECT_FALSE(DTypeIsReal(DType::kI32));
  EXPECT_TRUE(DTypeIsReal(DType::kQ4_K));
}

TEST(BFloat16, EveryValueSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float x = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    const BFloat16 again = ToBFloat16(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(ToFloat(again)));
    } else {
      ASSERT_EQ(again.bits, bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(ToFloat(ToBFloat16(1.0f + 0x1p-8f)), 1.0f);                // a tie, down to even
  EXPECT_EQ(ToFloat(ToBFloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // a tie, up to even
  EXPECT_EQ(ToFloat(ToBFloat16(1.0f + 0x1.1p-8f)), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isinf(ToFloat(ToBFloat16(std::numeric_limits<float>::max()))));
}

TEST(BFloat16, NanWithLowBitsOnlyStaysNan) {
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Half, EveryValueSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float x = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(x))));
    } else {
      ASSERT_EQ(FloatToHalf(x), bits) << x;
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x8001), -0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
}

// The nearest half lies within half a step of its neighbors; ties have an even last bit.
TEST(Half, RoundsToNearestTiesToEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(0x1.01p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xfc00);
  std::mt19937 rng(1);
  for (int i = 0; i < 100000; ++i) {
    const float x =
        std::ldexp(static_cast<float>(rng()) * 0x1p-32f + 0.5f, static_cast<int>(rng() % 28) - 13);
    const uint16_t half = FloatToHalf(x);
    const double error = std::abs(static_cast<double>(HalfToFloat(half)) - x);
    EXPECT_LE(error, std::abs(static_cast<double>(HalfToFloat(half + 1)) - x));
    EXPECT_LE(error, std::abs(static_cast<double>(HalfToFloat(half - 1)) - x));
  }
}

}  // namespace
}  // namespace lowkey
