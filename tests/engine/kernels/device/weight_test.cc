#include "engine/kernels/device/weight.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/narrow_weight.h"
#include "gtest/gtest.h"
#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

TensorView Matrix(const std::vector<float>& x, int64_t n_rows) {
  return {DType::kF32,
          {n_rows, static_cast<int64_t>(x.size()) / n_rows},
          reinterpret_cast<const std::byte*>(x.data())};
}

std::vector<std::byte> BytesOn(EmulatedDevice& device, const DeviceWeight& weight) {
  std::vector<std::byte> there(weight.size_bytes());
  EXPECT_TRUE(device.Download(weight.data(), there.data(), weight.size_bytes()).ok());
  return there;
}

// Eight rows of the gate stand above eight of `up`; zeros stand in place of missing ones.
TEST(GatedWeightTest, AlternatesGatesAndUps) {
  constexpr int64_t kIn = 72, kChannels = 11;
  const std::vector<float> gate = Normal(kChannels * kIn, 1), up = Normal(kChannels * kIn, 2);
  std::vector<float> expected(32 * kIn);
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const int64_t row = channel / 8 * 16 + channel % 8;
    std::copy_n(gate.begin() + channel * kIn, kIn, expected.begin() + row * kIn);
    std::copy_n(up.begin() + channel * kIn, kIn, expected.begin() + (row + 8) * kIn);
  }
  const TensorView whole = Matrix(expected, 32);
  ThreadPool pool(2);
  EmulatedDevice device;
  for (const StorageType type :
       {StorageType::kFloat32, StorageType::kBFloat16, StorageType::kInt8, StorageType::kFloat8}) {
    const auto weight =
        MakeGatedWeight(Matrix(gate, kChannels), Matrix(up, kChannels), type, pool, device);
    ASSERT_TRUE(weight.ok()) << weight.status();
    EXPECT_EQ((*weight)->n_out(), 32);
    const auto same = MakeDeviceWeight({&whole, 1}, type, pool, device);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(BytesOn(device, **weight), BytesOn(device, **same));
  }
}

TEST(GatedWeightTest, ABiasAlternatesLikeItsWeight) {
  EXPECT_TRUE(GatedBias({}, {}).empty());
  std::vector<float> gate(9), up(9), expected(32);
  for (int i = 0; i < 9; ++i) {
    gate[i] = expected[i / 8 * 16 + i % 8] = static_cast<float>(i + 1);
    up[i] = expected[i / 8 * 16 + i % 8 + 8] = static_cast<float>(-i - 1);
  }
  EXPECT_EQ(GatedBias(gate, up), expected);
}

class NarrowedTest : public testing::TestWithParam<StorageType> {};

INSTANTIATE_TEST_SUITE_P(Types, NarrowedTest,
                         testing::Values(StorageType::kInt8, StorageType::kFloat8),
                         [](const auto& info) {
                           return info.param == StorageType::kInt8 ? "int8" : "float8";
                         });

TEST_P(NarrowedTest, StacksPartsAndPadsWithZeros) {
  const std::vector<float> a = Normal(3 * 72, 4), b = Normal(2 * 72, 5);
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  const TensorView parts[] = {Matrix(a, 3), Matrix(b, 2)};
  ThreadPool pool(1);
  const std::vector<std::byte> stacked = NarrowWeight(parts, GetParam(), pool);
  const TensorView whole = Matrix(both, 5);
  EXPECT_EQ(stacked, NarrowWeight({&whole, 1}, GetParam(), pool));
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t k = 72; k < 128; ++k) EXPECT_EQ(stacked[row * 128 + NarrowPlace(k)], std::byte{0});
  }
}

// Parts that end within a task's rows, and tasks that end within a part.
TEST_P(NarrowedTest, ThreadsChangeNoByte) {
  const int64_t n_in = 72;
  const std::vector<float> a = Normal(37 * n_in, 1), b = Normal(1 * n_in, 2),
                           c = Normal(205 * n_in, 3);
  const TensorView parts[] = {Matrix(a, 37), Matrix(b, 1), Matrix(c, 205)};
  // Row by row, by what a row is.
  const NarrowLayout layout{GetParam(), 37 + 1 + 205, n_in};
  std::vector<std::byte> expected(layout.size_bytes());
  for (int64_t i = 0; i < layout.n_out; ++i) {
    const RowRange ranges[] = {{&parts[0], 0, 37}, {&parts[1], 0, 1}, {&parts[2], 0, 205}};
    NarrowRows(ranges, layout, {i, i + 1}, expected.data());
  }
  for (int n_threads : {1, 4}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(NarrowWeight(parts, GetParam(), pool), expected) << n_threads << " threads";
  }
}

TEST_P(NarrowedTest, LiesOnADeviceAsItIs) {
  const std::vector<float> x = Normal(9 * 100, 6);
  const TensorView whole = Matrix(x, 9);
  ThreadPool pool(2);
  EmulatedDevice device;
  const auto weight = MakeDeviceWeight({&whole, 1}, GetParam(), pool, device);
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ((*weight)->n_out(), 9);
  EXPECT_EQ((*weight)->n_in(), 100);
  EXPECT_EQ((*weight)->type(), GetParam());
  const std::vector<std::byte> expected = NarrowWeight({&whole, 1}, GetParam(), pool);
  std::vector<std::byte> there((*weight)->size_bytes());
  ASSERT_TRUE(
      device.Download((*weight)->data(), there.data(), static_cast<int64_t>(there.size())).ok());
  EXPECT_EQ(there, expected);
}

TEST(MakeDeviceWeight, OfMoreBitsHasItsRowsInOrder) {
  const std::vector<float> x = Normal(3 * 20, 7);
  const TensorView whole = Matrix(x, 3);
  ThreadPool pool(2);
  EmulatedDevice device;
  const auto weight = MakeDeviceWeight({&whole, 1}, StorageType::kFloat32, pool, device);
  ASSERT_TRUE(weight.ok()) << weight.status();
  std::vector<float> there(x.size());
  ASSERT_TRUE(device.Download((*weight)->data(), there.data(), (*weight)->size_bytes()).ok());
  EXPECT_EQ(there, x);
}

// 2 x 700,000 numbers in bf16 are more bytes than are converted at once; a part is stored as it is.
TEST(MakeDeviceWeight, RoundsPartsOfOtherTypes) {
  const std::vector<float> x = Normal(3 * 700000, 8);
  std::vector<uint16_t> rounded;
  for (float v : x) rounded.push_back(ToBFloat16(v).bits);
  TensorView parts[] = {Matrix(x, 3), Matrix(x, 3)};
  parts[1].dtype = DType::kBF16;
  parts[1].data = reinterpret_cast<const std::byte*>(rounded.data());
  ThreadPool pool(2);
  EmulatedDevice device;
  const auto weight = MakeDeviceWeight(parts, StorageType::kBFloat16, pool, device);
  ASSERT_TRUE(weight.ok()) << weight.status();
  std::vector<uint16_t> there(2 * x.size()), expected = rounded;
  expected.insert(expected.end(), rounded.begin(), rounded.end());
  ASSERT_TRUE(device.Download((*weight)->data(), there.data(), (*weight)->size_bytes()).ok());
  EXPECT_TRUE(there == expected);
}

}  // namespace
}  // namespace lowkey
