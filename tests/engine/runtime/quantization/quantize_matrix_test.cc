#include "engine/runtime/quantization/quantize_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/codes/grouped_codes.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kOut = 72, kIn = 96, kGroup = 32;

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = 0.05f * normal(rng);
  return out;
}

TensorView ViewOf(const std::vector<float>& weights) {
  return {DType::kF32, {kOut, kIn}, reinterpret_cast<const std::byte*>(weights.data())};
}

// Inputs of which neighbors are alike, and some are much larger than others.
std::vector<double> SecondMoment() {
  std::vector<double> h(kIn * kIn);
  for (int64_t i = 0; i < kIn; ++i) {
    for (int64_t j = 0; j < kIn; ++j) {
      const auto size = [](int64_t k) { return k % 7 == 0 ? 5.0 : 1.0; };
      h[i * kIn + j] = size(i) * size(j) * std::pow(0.9, std::abs(static_cast<double>(i - j)));
    }
  }
  return h;
}

// A rounded matrix, as a checkpoint's reader sees it.
struct Read {
  Read(const RoundedMatrix& rounded, const Rounding& rounding) {
    codes.dtype = rounding.bits == 8 ? DType::kGptq8 : DType::kGptq4;
    codes.n_out = kOut;
    codes.n_in = kIn;
    codes.group_size = rounding.group_size;
    codes.codes = reinterpret_cast<const std::byte*>(rounded.codes.data());
    codes.zeros = reinterpret_cast<const std::byte*>(rounded.zeros.data());
    codes.scales = reinterpret_cast<const std::byte*>(rounded.scales.data());
    codes.zero_offset = 1;
  }
  std::vector<float> Row(int64_t row) const {
    std::vector<float> out(kIn);
    LoadRow(codes, row, out.data());
    return out;
  }

  GroupedCodes codes;
};

// Returns the expected square of the outputs of `rows` [kOut, kIn].
double Square(const std::vector<double>& h, const std::vector<float>& rows) {
  double sum = 0;
  for (int64_t r = 0; r < kOut; ++r) {
    for (int64_t i = 0; i < kIn; ++i) {
      for (int64_t j = 0; j < kIn; ++j) {
        sum += rows[r * kIn + i] * h[i * kIn + j] * rows[r * kIn + j];
      }
    }
  }
  return sum;
}

double SquareOfErrors(const std::vector<double>& h, const std::vector<float>& weights,
                      const RoundedMatrix& rounded, const Rounding& rounding) {
  const Read read(rounded, rounding);
  std::vector<float> errors = weights;
  for (int64_t r = 0; r < kOut; ++r) {
    const std::vector<float> row = read.Row(r);
    for (int64_t i = 0; i < kIn; ++i) errors[r * kIn + i] -= row[i];
  }
  return Square(h, errors);
}

class QuantizeMatrixTest : public ::testing::TestWithParam<Rounding> {
 protected:
  ThreadPool pool_{2};
};

TEST_P(QuantizeMatrixTest, StatesTheErrorOfItsOutputs) {
  const std::vector<float> weights = Random(kOut * kIn, 1);
  std::vector<double> h = SecondMoment();
  const ErrorMetric metric = *MetricOf(h, pool_);
  const RoundedMatrix rounded = QuantizeMatrix(ViewOf(weights), GetParam(), metric, pool_);
  // The metric's own moment: scaled to a mean of 1, with its hundredth on the diagonal.
  double trace = 0;
  for (int64_t i = 0; i < kIn; ++i) trace += h[i * kIn + i];
  for (double& x : h) x *= kIn / trace;
  for (int64_t i = 0; i < kIn; ++i) h[i * kIn + i] += 0.01;
  const double size = Square(h, weights);
  EXPECT_NEAR(rounded.size, size, 1e-4 * size);
  EXPECT_NEAR(rounded.error, SquareOfErrors(h, weights, rounded, GetParam()), 1e-6 * size);
  EXPECT_LT(rounded.error, (GetParam().bits == 8 ? 1e-4 : 0.01) * size);
}

TEST_P(QuantizeMatrixTest, MakesUpForErrorsOfInputsThatAreAlike) {
  const std::vector<float> weights = Random(kOut * kIn, 2);
  const std::vector<double> h = SecondMoment();
  const auto error = [&](const ErrorMetric& metric) {
    return SquareOfErrors(h, weights, QuantizeMatrix(ViewOf(weights), GetParam(), metric, pool_),
                          GetParam());
  };
  EXPECT_LT(error(*MetricOf(h, pool_)), 0.5 * error(EqualInputs(kIn)));
}

// Every code is the nearest to its target in double precision, but for ties.
TEST_P(QuantizeMatrixTest, CodesAreBabaisNearestPlane) {
  const std::vector<float> weights = Random(kOut * kIn, 3);
  const ErrorMetric metric = *MetricOf(SecondMoment(), pool_);
  const RoundedMatrix rounded = QuantizeMatrix(ViewOf(weights), GetParam(), metric, pool_);
  const Read read(rounded, GetParam());
  const int64_t n_groups = kIn / GetParam().group_size;
  for (int64_t r = 0; r < kOut; ++r) {
    std::vector<uint8_t> codes(kIn);
    std::vector<float> scales(n_groups);
    std::vector<int32_t> zeros(n_groups);
    LoadCodes(read.codes, r, codes.data());
    LoadGroups(read.codes, r, scales.data(), zeros.data());
    const std::vector<float> row = read.Row(r);
    for (int64_t i = kIn - 1; i >= 0; --i) {
      double target = weights[r * kIn + i];
      for (int64_t j = i + 1; j < kIn; ++j) {
        target += metric.ratios[i * kIn + j] * (double{weights[r * kIn + j]} - row[j]);
      }
      const int64_t g = i / GetParam().group_size;
      const double wanted =
          std::clamp(target / scales[g] + zeros[g], 0.0, 1.0 * read.codes.max_code());
      ASSERT_NEAR(codes[i], wanted, 0.501) << "row " << r << ", input " << i;
    }
  }
}

TEST_P(QuantizeMatrixTest, DoesNotDependOnThreads) {
  const std::vector<float> weights = Random(kOut * kIn, 4);
  ThreadPool one(1);
  const RoundedMatrix a =
      QuantizeMatrix(ViewOf(weights), GetParam(), *MetricOf(SecondMoment(), one), one);
  const RoundedMatrix b =
      QuantizeMatrix(ViewOf(weights), GetParam(), *MetricOf(SecondMoment(), pool_), pool_);
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.error, b.error);
}

TEST_P(QuantizeMatrixTest, ZerosAndTheLargestNumbersStayFinite) {
  std::vector<float> weights(kOut * kIn, 0.0f);
  for (int64_t i = 0; i < kIn; ++i) weights[i] = i % 2 == 0 ? kMaxWeight : -kMaxWeight;
  weights[kIn] = 1e-30f;
  const ErrorMetric metric = *MetricOf(SecondMoment(), pool_);
  const RoundedMatrix rounded = QuantizeMatrix(ViewOf(weights), GetParam(), metric, pool_);
  const Read rows(rounded, GetParam());
  for (const float x : rows.Row(0)) EXPECT_TRUE(std::isfinite(x));
  for (const float x : rows.Row(1)) EXPECT_EQ(x, 0);
  for (const float x : rows.Row(2)) EXPECT_EQ(x, 0);
}

INSTANTIATE_TEST_SUITE_P(Roundings, QuantizeMatrixTest,
                         ::testing::Values(Rounding{4, kGroup}, Rounding{4, kIn},
                                           Rounding{8, kGroup}),
                         [](const auto& info) {
                           return "bits" + std::to_string(info.param.bits) + "group" +
                                  std::to_string(info.param.group_size);
                         });

TEST(QuantizeMatrix, NumbersThatCodesCanHoldAreKept) {
  std::mt19937 rng(5);
  std::vector<float> weights(kOut * kIn);
  for (int64_t i = 0; i < kOut * kIn; ++i) {
    weights[i] = 0.015625f * (static_cast<float>(rng() % 16) - 7);
  }
  for (int64_t i = 0; i < kOut * kIn; i += kGroup) {
    weights[i] = 0.015625f * 8;
    weights[i + 1] = 0.015625f * -7;
  }
  ThreadPool pool(1);
  const Rounding rounding = {4, kGroup};
  const RoundedMatrix rounded = QuantizeMatrix(ViewOf(weights), rounding, EqualInputs(kIn), pool);
  EXPECT_EQ(rounded.error, 0);
  const Read read(rounded, rounding);
  for (int64_t r = 0; r < kOut; ++r) {
    const std::vector<float> row = read.Row(r);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), weights.begin() + r * kIn)) << r;
  }
}

TEST(QuantizeMatrix, CodesOf8BitsHaveSigns) {
  const std::vector<float> weights = Random(kOut * kIn, 6);
  ThreadPool pool(1);
  const RoundedMatrix rounded =
      QuantizeMatrix(ViewOf(weights), {8, kGroup}, EqualInputs(kIn), pool);
  for (const uint32_t zeros : rounded.zeros) EXPECT_EQ(zeros, 0x7f7f7f7fu);
}

TEST(MetricOf, TakesWhatInputsDidNotShow) {
  ThreadPool pool(1);
  std::vector<double> h(4 * 4, 0.0);
  const auto nothing = MetricOf(h, pool);
  ASSERT_TRUE(nothing.has_value());
  EXPECT_EQ(nothing->ratios, (std::vector<float>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
  h.assign(16, 1e-30);  // rank 1, and small
  EXPECT_TRUE(MetricOf(h, pool).has_value());
  h[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(MetricOf(h, pool).has_value());
}

}  // namespace
}  // namespace lowkey
