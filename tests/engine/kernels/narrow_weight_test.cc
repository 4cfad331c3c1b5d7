#include "engine/kernels/narrow_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/kernels/device/weight.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

std::vector<float> Normal(int64_t n, unsigned seed, float deviation = 0.02f) {
  std::minstd_rand engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(n);
  for (float& v : x) v = normal(engine);
  return x;
}

TensorView Matrix(const std::vector<float>& x, int64_t n_rows) {
  return {DType::kF32,
          {n_rows, static_cast<int64_t>(x.size()) / n_rows},
          reinterpret_cast<const std::byte*>(x.data())};
}

std::vector<float> Widened(const std::vector<std::byte>& weight, const NarrowLayout& layout) {
  std::vector<float> out(layout.n_out * layout.n_in);
  for (int64_t i = 0; i < layout.n_out; ++i) {
    WidenRow(layout, weight.data(), i, out.data() + i * layout.n_in);
  }
  return out;
}

// ---------------------------------------------------------------- e4m3

// Decodes by the definition: (-1)^s 2^(e - 7) (1 + m / 8), and 2^-6 m / 8 where e is 0.
double ByDefinition(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double magnitude = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8, EveryCodeIsWhatTheFormatSays) {
  for (int code = 0; code < 256; ++code) {
    const float value = Float8ToFloat(static_cast<uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(value, ByDefinition(code)) << code;
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
    EXPECT_EQ(ToFloat8(value), code);
  }
  EXPECT_EQ(Float8ToFloat(0x7e), 448);
}

TEST(Float8, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = ByDefinition(code), high = ByDefinition(code + 1), middle = (low + high) / 2;
    const auto even = static_cast<uint8_t>(code % 2 == 0 ? code : code + 1);
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle);
    EXPECT_EQ(ToFloat8(tie), even);
    EXPECT_EQ(ToFloat8(-tie), even | 0x80);
    EXPECT_EQ(ToFloat8(std::nextafter(tie, 0.0f)), code);
    EXPECT_EQ(ToFloat8(std::nextafter(tie, 1e9f)), code + 1);
  }
}

TEST(Float8, WhatIsTooLargeIsTheLargest) {
  for (float x : {448.5f, 470.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ToFloat8(x), 0x7e);
    EXPECT_EQ(ToFloat8(-x), 0xfe);
  }
  EXPECT_EQ(ToFloat8(std::nanf("")) & 0x7f, 0x7f);
  EXPECT_EQ(ToFloat8(1e-30f), 0);
}

// ---------------------------------------------------------------- layout

TEST(NarrowWeight, PlacesFillBlocksAndLanesHaveWhatTheyMultiply) {
  std::vector<int64_t> inputs(2 * kNarrowBlock, -1);
  for (int64_t k = 0; k < 2 * kNarrowBlock; ++k) inputs.at(NarrowPlace(k)) = k;
  for (int64_t at = 0; at < 2 * kNarrowBlock; ++at) {
    // Bytes 0 and 2 of a word are two successive inputs, 1 and 3 the next two.
    const int64_t lane = at % 64 / 16, half = at % 16 / 8, word = at % 8 / 4, byte = at % 4;
    const int64_t of_four[] = {0, 2, 1, 3};
    EXPECT_EQ(inputs[at], at / 64 * 64 + 32 * half + 8 * lane + 4 * word + of_four[byte]);
  }
}

TEST(NarrowWeight, TakesAByteANumberAndItsScales) {
  EXPECT_EQ(WeightBytes(StorageType::kFloat32, 3, 100), 1200);
  EXPECT_EQ(WeightBytes(StorageType::kBFloat16, 3, 100), 600);
  EXPECT_EQ(WeightBytes(StorageType::kInt8, 4096, 4096), 4096 * 4096 + 64 * 4096 * 2);
  EXPECT_EQ(WeightBytes(StorageType::kFloat8, 4096, 4096), 4096 * 4096 + 4096 * 2);
  EXPECT_EQ(WeightBytes(StorageType::kInt8, 3, 100), 3 * 128 + 2 * 8 * 2);
}

// ---------------------------------------------------------------- numbers

class NarrowWeightTest : public testing::TestWithParam<StorageType> {
 protected:
  std::vector<float> RoundTrip(const std::vector<float>& x, int64_t n_rows) const {
    const TensorView view = Matrix(x, n_rows);
    const NarrowLayout layout{GetParam(), view.shape[0], view.shape[1]};
    ThreadPool pool(1);
    const std::vector<std::byte> weight = NarrowWeight({&view, 1}, GetParam(), pool);
    EXPECT_EQ(static_cast<int64_t>(weight.size()), layout.size_bytes());
    return Widened(weight, layout);
  }
};

INSTANTIATE_TEST_SUITE_P(Types, NarrowWeightTest,
                         testing::Values(StorageType::kInt8, StorageType::kFloat8),
                         [](const auto& info) {
                           return info.param == StorageType::kInt8 ? "int8" : "float8";
                         });

TEST_P(NarrowWeightTest, ComesBackWithinHalfAStep) {
  const int64_t n_in = 200, n_out = 9;
  std::vector<float> x = Normal(n_out * n_in, 1);
  x[3 * n_in + 70] = 1.5f;  // a group with an outlier, and rows of very different size
  for (int64_t k = 0; k < n_in; ++k) x[5 * n_in + k] *= 1e-20f;
  for (int64_t k = 0; k < n_in; ++k) x[6 * n_in + k] *= 1e20f;
  const std::vector<float> back = RoundTrip(x, n_out);
  const bool is_int8 = GetParam() == StorageType::kInt8;
  for (int64_t i = 0; i < n_out; ++i) {
    for (int64_t k = 0; k < n_in; ++k) {
      const int64_t first = is_int8 ? k / 64 * 64 : 0,
                    last = is_int8 ? std::min(first + 64, n_in) : n_in;
      double largest = 0;
      for (int64_t j = first; j < last; ++j) {
        largest = std::max(largest, std::fabs(double{x[i * n_in + j]}));
      }
      const double value = x[i * n_in + k];
      // bf16 moves a scale by 2^-9 of itself.
      const double half_step =
          is_int8 ? largest / 127 / 2 * 1.003
                  : std::max(std::fabs(value) / 16, largest / 448 * 0x1p-10) * 1.003;
      ASSERT_NEAR(back[i * n_in + k], value, half_step) << i << " " << k;
    }
  }
}

// The error per row of normally distributed weights is noise to the model.
TEST_P(NarrowWeightTest, NoiseIsSmall) {
  const std::vector<float> x = Normal(16 * 1024, 2);
  const std::vector<float> back = RoundTrip(x, 16);
  double signal = 0, noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    signal += double{x[i]} * x[i];
    noise += (double{x[i]} - back[i]) * (double{x[i]} - back[i]);
  }
  EXPECT_LT(std::sqrt(noise / signal), GetParam() == StorageType::kInt8 ? 0.0065 : 0.028);
}

TEST_P(NarrowWeightTest, NumbersOfItsOwnKindComeBackExactly) {
  std::vector<float> x(128);
  for (int i = 0; i < 128; ++i) {
    x[i] = GetParam() == StorageType::kInt8 ? static_cast<float>(i % 64 * 2 - 63)
                                            : Float8ToFloat(static_cast<uint8_t>(i * 37 % 126));
  }
  x[0] = x[64] = GetParam() == StorageType::kInt8 ? 127.0f : 448.0f;
  for (float scale : {1.0f, 0x1p-20f, -0x1p30f}) {
    std::vector<float> scaled = x;
    for (float& v : scaled) v *= scale;
    EXPECT_EQ(RoundTrip(scaled, 1), scaled);
  }
}

TEST_P(NarrowWeightTest, NothingAndNearlyNothingAreZero) {
  for (float x : {0.0f, 1e-36f, 1e-45f}) {
    EXPECT_EQ(RoundTrip(std::vector<float>(70, x), 1), std::vector<float>(70, 0.0f));
  }
}

TEST_P(NarrowWeightTest, WhatIsNotFiniteIsNotHidden) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = Normal(2 * 128, 3);
    x[5] = bad;
    const std::vector<float> back = RoundTrip(x, 2);
    const int64_t n_bad = std::count_if(back.begin(), back.end(), [](float v) { return v != v; });
    EXPECT_EQ(n_bad, GetParam() == StorageType::kInt8 ? 64 : 128);
    EXPECT_TRUE(std::isnan(back[5]));
  }
}

}  // namespace
}  // namespace lowkey
