// Tests the kernels of rows.cu on the emulated grid, or on the device that LOWKEY_TEST_DEVICE
// names.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/device/kernels.h"
#include "tests/engine/kernels/ref/ref.h"
#include "tests/testing/test_device.h"

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
  Device& device_ = KernelTestDevice();
  const DeviceKernels& kernels_ = device_.kernels();
};

TEST_P(CudaRowsTest, RmsNormOfGatheredRows) {
  const int64_t dim = GetParam();
  const std::vector<float> x = Random(5 * dim, 1), weight = Random(dim, 2);
  const std::vector<int32_t> rows = {4, 0, 4};
  DeviceArray<float> x_there(x), weight_there(weight), wide(3 * dim), also(3 * dim);
  DeviceArray<int32_t> rows_there(rows);
  DeviceArray<uint16_t> narrow(3 * dim);
  DeviceNormArgs args{x_there.data(), rows_there.data(), weight_there.data(), 1e-5f, dim, 3,
                      wide.data()};
  kernels_.rms_norm(device_, args);
  args.out = narrow.data();
  args.out_type = StorageType::kBFloat16;
  args.also_floats = also.data();
  kernels_.rms_norm(device_, args);
  const std::vector<float> out = wide.Read();
  for (int64_t i = 0; i < 3; ++i) {
    const auto expected = ref::RmsNorm(Row(x, rows[i], dim), weight, 1e-5);
    for (int64_t j = 0; j < dim; ++j) EXPECT_NEAR(out[i * dim + j], expected[j], 2e-6);
  }
  EXPECT_EQ(also.Read(), out);
  EXPECT_EQ(narrow.Read(), Rounded(out));
}

TEST_P(CudaRowsTest, Gated) {
  const int64_t n = GetParam();
  const int64_t ld = (n + 7) / 8 * 16 + 5;
  const std::vector<float> x = Random(3 * ld, 3);
  DeviceArray<float> x_there(x), gated(3 * n);
  kernels_.gated(device_,
                 {.gate_up = x_there.data(), .ld = ld, .n = n, .n_rows = 3, .out = gated.data()});
  const std::vector<float> out = gated.Read();
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t gate = i * ld + j / 8 * 16 + j % 8;
      const auto expected = ref::SiluMul({x[gate]}, {x[gate + 8]});
      EXPECT_NEAR(out[i * n + j], expected[0], 1e-6);
    }
  }
}

TEST_P(CudaRowsTest, GatesRoundedNumbers) {
  const int64_t n = GetParam();
  const int64_t ld = (n + 7) / 8 * 16 + 8;
  const std::vector<uint16_t> x = Rounded(Random(3 * ld, 3));
  std::vector<float> widened;
  for (const uint16_t bits : x) widened.push_back(ToFloat(BFloat16{bits}));
  DeviceArray<uint16_t> x_there(x), gated(3 * n);
  DeviceArray<float> widened_there(widened), expected(3 * n);
  kernels_.gated(device_, {.gate_up = x_there.data(),
                           .gate_up_type = StorageType::kBFloat16,
                           .ld = ld,
                           .n = n,
                           .n_rows = 3,
                           .out = gated.data(),
                           .out_type = StorageType::kBFloat16});
  kernels_.gated(
      device_,
      {.gate_up = widened_there.data(), .ld = ld, .n = n, .n_rows = 3, .out = expected.data()});
  EXPECT_EQ(gated.Read(), Rounded(expected.Read()));
}

TEST_P(CudaRowsTest, RotatesHeadsAfterTheirNorms) {
  const int64_t head_dim = GetParam() * 2, half = GetParam(), n_rows = 3, ld = 5 * head_dim + 1;
  const std::vector<int32_t> positions = {0, 7, 100000};
  std::vector<double> frequencies(half);
  for (int64_t j = 0; j < half; ++j) {
    frequencies[j] = std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
  }
  const std::vector<float> x = Random(n_rows * ld, 4), q_norm = Random(head_dim, 5);
  DeviceArray<int32_t> positions_there(positions);
  DeviceArray<double> frequencies_there(frequencies);
  DeviceArray<float> cos_there(n_rows * half), sin_there(n_rows * half), turned_there(x),
      normed_there(x), q_norm_there(q_norm);
  kernels_.angles(device_, {positions_there.data(), frequencies_there.data(), half, n_rows,
                            cos_there.data(), sin_there.data()});
  RotateArgs args{.qkv = turned_there.data(),
                  .ld = ld,
                  .n_rows = n_rows,
                  .n_heads = 3,
                  .n_kv_heads = 2,
                  .head_dim = head_dim,
                  .eps = 1e-5f,
                  .cos = cos_there.data(),
                  .sin = sin_there.data()};
  kernels_.rotate(device_, args);
  args.qkv = normed_there.data();
  args.q_norm = q_norm_there.data();
  kernels_.rotate(device_, args);
  const std::vector<float> cos = cos_there.Read(), sin = sin_there.Read();
  const std::vector<float> turned = turned_there.Read(), normed = normed_there.Read();
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

// Queries are rotated in place, keys and values arrive in the pages as write_kv stores the rotated
// ones, and a slot without a page changes nothing.
template <typename T>
void RotatesIntoPages(Device& device, int64_t half, StorageType type) {
  const int64_t head_dim = 2 * half, n_rows = 4, n_heads = 3, n_kv_heads = 2;
  const int64_t ld = (n_heads + 2 * n_kv_heads) * head_dim + 1, layer = 1;
  const std::vector<float> x = Random(n_rows * ld, 4);
  const DeviceArray<float> cos(Random(n_rows * half, 6)), sin(Random(n_rows * half, 7)),
      norm(Random(head_dim, 8));
  const int64_t page_size = 2 * n_kv_heads * 2 * 64 * head_dim;  // of two layers
  std::vector<DeviceArray<T>> by_two, by_one;
  for (int i = 0; i < 2; ++i) {
    by_two.emplace_back(std::vector<T>(page_size, T{1}));
    by_one.emplace_back(std::vector<T>(page_size, T{1}));
  }
  const auto slots = [](std::vector<DeviceArray<T>>& pages) {
    const auto at = [&](int i) { return reinterpret_cast<std::byte*>(pages[i].data()); };
    return DeviceArray<CacheSlot>({{at(1), 2, 63}, {nullptr, 0, 0}, {at(0), 0, 5}, {at(1), 3, 0}});
  };
  const DeviceArray<CacheSlot> slots_of_two = slots(by_two), slots_of_one = slots(by_one);
  DeviceArray<float> rotated(x), moved(x);
  RotateArgs args{.qkv = rotated.data(),
                  .ld = ld,
                  .n_rows = n_rows,
                  .n_heads = n_heads,
                  .n_kv_heads = n_kv_heads,
                  .head_dim = head_dim,
                  .n_values = n_kv_heads * head_dim,
                  .k_norm = norm.data(),
                  .eps = 1e-5f,
                  .cos = cos.data(),
                  .sin = sin.data()};
  device.kernels().rotate(device, args);
  const float* keys = rotated.data() + n_heads * head_dim;
  device.kernels().write_kv(device, {{slots_of_two.data(), 4, type},
                                     layer,
                                     n_kv_heads,
                                     head_dim,
                                     keys,
                                     keys + n_kv_heads * head_dim,
                                     ld});
  args.qkv = moved.data();
  args.pages = {slots_of_one.data(), 4, type};
  args.layer = layer;
  device.kernels().rotate(device, args);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(by_one[i].Read(), by_two[i].Read()) << i;
  const std::vector<float> expected = rotated.Read(), out = moved.Read();
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t j = 0; j < ld; ++j) {
      const bool turns = row != 1 && j < n_heads * head_dim;
      EXPECT_EQ(out[row * ld + j], turns ? expected[row * ld + j] : x[row * ld + j]);
    }
  }
}

TEST_P(CudaRowsTest, RotatesKeysIntoPages) {
  RotatesIntoPages<float>(device_, GetParam(), StorageType::kFloat32);
  RotatesIntoPages<uint16_t>(device_, GetParam(), StorageType::kBFloat16);
}

// Rows in bf16 give what the same numbers in fp32 give; values, here narrower than keys, are
// widened.
TEST_P(CudaRowsTest, ReadsRoundedRows) {
  const int64_t half = GetParam(), head_dim = 2 * half, n_rows = 3, n_values = 2 * head_dim - 1;
  const int64_t ld = 5 * head_dim + n_values;
  const std::vector<uint16_t> rounded = Rounded(Random(n_rows * ld, 4));
  std::vector<float> x(rounded.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = ToFloat(BFloat16{rounded[i]});
  const DeviceArray<uint16_t> rounded_there(rounded);
  DeviceArray<float> from_floats(x), from_rounded(x.size());
  const DeviceArray<float> cos(Random(n_rows * half, 6)), sin(Random(n_rows * half, 7)),
      norm(Random(head_dim, 8));
  RotateArgs args{.qkv = from_floats.data(),
                  .ld = ld,
                  .n_rows = n_rows,
                  .n_heads = 3,
                  .n_kv_heads = 2,
                  .head_dim = head_dim,
                  .n_values = n_values,
                  .q_norm = norm.data(),
                  .eps = 1e-5f,
                  .cos = cos.data(),
                  .sin = sin.data()};
  kernels_.rotate(device_, args);
  args.qkv = from_rounded.data();
  args.rounded = rounded_there.data();
  kernels_.rotate(device_, args);
  EXPECT_EQ(from_rounded.Read(), from_floats.Read());
}

TEST_P(CudaRowsTest, TakesKeysAndValuesFromSlices) {
  const int64_t head_dim = GetParam() * 2, half = GetParam(), n_rows = 3, ld = 7 * head_dim + 1;
  const std::vector<float> x = Random(n_rows * ld, 4), slices = Random(n_rows * 9 * head_dim, 5);
  const std::vector<float> cos = Random(n_rows * half, 6), sin = Random(n_rows * half, 7);
  const DeviceArray<float> slices_there(slices), cos_there(cos), sin_there(sin);
  DeviceArray<float> qkv(x);
  RotateArgs args{.qkv = qkv.data(),
                  .ld = ld,
                  .n_rows = n_rows,
                  .n_heads = 3,
                  .n_kv_heads = 2,
                  .head_dim = head_dim,
                  .n_values = 2 * head_dim,
                  .cos = cos_there.data(),
                  .sin = sin_there.data(),
                  .key_slices = slices_there.data(),
                  .value_slices = slices_there.data(),
                  .ld_slices = 9 * head_dim};
  kernels_.rotate(device_, args);
  const std::vector<float> out = qkv.Read();
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t head = 0; head < 2; ++head) {
      const auto from = slices.begin() + i * args.ld_slices + head * head_dim;
      const std::vector<float> slice(from, from + head_dim);
      const auto key = ref::Rope(slice, Row(cos, i, half), Row(sin, i, half));
      for (int64_t j = 0; j < head_dim; ++j) {
        EXPECT_NEAR(out[i * ld + (3 + head) * head_dim + j], key[j], 1e-6);
        EXPECT_EQ(out[i * ld + (5 + head) * head_dim + j], slice[j]);
      }
    }
    EXPECT_EQ(out[i * ld + 7 * head_dim], x[i * ld + 7 * head_dim]);
  }
}

TEST_P(CudaRowsTest, EmbedsAndRounds) {
  const int64_t dim = GetParam();
  const std::vector<float> table = Random(4 * dim, 6);
  const std::vector<int32_t> tokens = {3, 3, 1};
  DeviceArray<float> table_there(table), wide_there(3 * dim), narrow_there(3 * dim);
  DeviceArray<uint16_t> narrow_table(Rounded(table)), rounded_there(3 * dim);
  DeviceArray<int32_t> tokens_there(tokens);
  kernels_.embed(device_, {tokens_there.data(), table_there.data(), StorageType::kFloat32, dim,
                           wide_there.data(), 3});
  kernels_.embed(device_, {tokens_there.data(), narrow_table.data(), StorageType::kBFloat16, dim,
                           narrow_there.data(), 3});
  kernels_.round(device_, {wide_there.data(), 3 * dim, rounded_there.data()});
  const std::vector<float> wide_rows = wide_there.Read();
  const std::vector<uint16_t> rounded = rounded_there.Read();
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(Row(wide_rows, i, dim), Row(table, tokens[i], dim));
  EXPECT_EQ(rounded, Rounded(wide_rows));
  EXPECT_EQ(Rounded(narrow_there.Read()), rounded);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaRowsTest, testing::Values(1, 31, 32, 300));

}  // namespace
}  // namespace lowkey
