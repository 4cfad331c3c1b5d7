#include "engine/kernels/cuda/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/emulated_device.h"
#include "engine/kernels/ref/ref.h"

namespace lowkey {
namespace {

std::vector<float> Random(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(engine);
  return x;
}

std::vector<float> Row(const std::vector<float>& x, int64_t row, int64_t n) {
  return {x.begin() + row * n, x.begin() + (row + 1) * n};
}

std::vector<uint16_t> Rounded(const std::vector<float>& x) {
  std::vector<uint16_t> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = ref::ToBf16(x[i]);
  return out;
}

class CudaRowsTest : public testing::TestWithParam<int64_t> {
 protected:
  EmulatedDevice device_;
};

TEST_P(CudaRowsTest, RmsNormOfGatheredRows) {
  const int64_t dim = GetParam();
  const std::vector<float> x = Random(5 * dim, 1), weight = Random(dim, 2);
  const std::vector<int32_t> rows = {4, 0, 4};
  std::vector<float> out(3 * dim), also(3 * dim);
  std::vector<uint16_t> narrow(3 * dim);
  DeviceNormArgs args{x.data(), rows.data(), weight.data(), 1e-5f, dim, 3, out.data()};
  RmsNormOnDevice(device_, args);
  args.out = narrow.data();
  args.out_type = StorageType::kBFloat16;
  args.also_floats = also.data();
  RmsNormOnDevice(device_, args);
  ASSERT_TRUE(device_.Wait().ok());
  for (int64_t i = 0; i < 3; ++i) {
    const auto expected = ref::RmsNorm(Row(x, rows[i], dim), weight, 1e-5);
    for (int64_t j = 0; j < dim; ++j) EXPECT_NEAR(out[i * dim + j], expected[j], 2e-6);
  }
  EXPECT_EQ(also, out);
  EXPECT_EQ(narrow, Rounded(out));
}

TEST_P(CudaRowsTest, Gated) {
  const int64_t n = GetParam();
  const std::vector<float> x = Random(3 * (2 * n + 5), 3);
  std::vector<float> out(3 * n);
  GatedOnDevice(device_, {x.data(), 2 * n + 5, n, 3, out.data()});
  ASSERT_TRUE(device_.Wait().ok());
  for (int64_t i = 0; i < 3; ++i) {
    const std::vector<float> row = Row(x, i, 2 * n + 5);
    const auto expected = ref::SiluMul(Row(row, 0, n), Row(row, 1, n));
    for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(out[i * n + j], expected[j], 1e-6);
  }
}

TEST_P(CudaRowsTest, RotatesHeadsAfterTheirNorms) {
  const int64_t head_dim = GetParam() * 2, half = GetParam(), n_rows = 3, ld = 5 * head_dim + 1;
  const std::vector<int32_t> positions = {0, 7, 100000};
  std::vector<double> frequencies(half);
  for (int64_t j = 0; j < half; ++j) {
    frequencies[j] = std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
  }
  std::vector<float> cos(n_rows * half), sin(n_rows * half);
  const std::vector<float> x = Random(n_rows * ld, 4), q_norm = Random(head_dim, 5);
  std::vector<float> turned = x, normed = x;
  AnglesOnDevice(device_,
                 {positions.data(), frequencies.data(), half, n_rows, cos.data(), sin.data()});
  RotateArgs args{turned.data(), ld,      n_rows, 3,          2,         head_dim,
                  nullptr,       nullptr, 1e-5f,  cos.data(), sin.data()};
  RotateOnDevice(device_, args);
  args.qkv = normed.data();
  args.q_norm = q_norm.data();
  RotateOnDevice(device_, args);
  ASSERT_TRUE(device_.Wait().ok());
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < half; ++j) {
      EXPECT_FLOAT_EQ(cos[i * half + j],
                      static_cast<float>(std::cos(positions[i] * frequencies[j])));
    }
    for (int64_t head = 0; head < 5; ++head) {
      const auto at = x.begin() + i * ld + head * head_dim;
      const std::vector<float> plain(at, at + head_dim);
      const auto expected = ref::Rope(plain, Row(cos, i, half), Row(sin, i, half));
      std::vector<float> scaled = plain;
      if (head < 3) {
        const auto norm = ref::RmsNorm(plain, q_norm, 1e-5);
        scaled.assign(norm.begin(), norm.end());
      }
      const auto expected_normed = ref::Rope(scaled, Row(cos, i, half), Row(sin, i, half));
      for (int64_t j = 0; j < head_dim; ++j) {
        const int64_t k = i * ld + head * head_dim + j;
        EXPECT_NEAR(turned[k], expected[j], 1e-6);
        EXPECT_NEAR(normed[k], expected_normed[j], 1e-5);
      }
    }
    EXPECT_EQ(turned[i * ld + 5 * head_dim], x[i * ld + 5 * head_dim]);
  }
}

TEST_P(CudaRowsTest, EmbedsAndRounds) {
  const int64_t dim = GetParam();
  const std::vector<float> table = Random(4 * dim, 6);
  const std::vector<uint16_t> narrow = Rounded(table);
  const std::vector<int32_t> tokens = {3, 3, 1};
  std::vector<float> wide_rows(3 * dim), narrow_rows(3 * dim);
  std::vector<uint16_t> rounded(3 * dim);
  EmbedOnDevice(device_,
                {tokens.data(), table.data(), StorageType::kFloat32, dim, wide_rows.data(), 3});
  EmbedOnDevice(device_,
                {tokens.data(), narrow.data(), StorageType::kBFloat16, dim, narrow_rows.data(), 3});
  RoundOnDevice(device_, {wide_rows.data(), 3 * dim, rounded.data()});
  ASSERT_TRUE(device_.Wait().ok());
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(Row(wide_rows, i, dim), Row(table, tokens[i], dim));
  EXPECT_EQ(rounded, Rounded(wide_rows));
  EXPECT_EQ(Rounded(narrow_rows), rounded);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaRowsTest, testing::Values(1, 31, 32, 300));

}  // namespace
}  // namespace lowkey
