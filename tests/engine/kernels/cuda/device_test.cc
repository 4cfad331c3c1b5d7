// Tests the contract of device.h on the emulated device, or on the one that LOWKEY_TEST_DEVICE
// names.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "engine/base/dtype.h"
#include "engine/kernels/device/kernels.h"
#include "engine/kernels/device/weight.h"
#include "engine/kernels/narrow_weight.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

std::vector<float> Random(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(engine);
  return x;
}

// Numbers whose products and sums are exact in any order, within 2^24.
std::vector<float> SmallIntegers(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(static_cast<int>(engine() % 9) - 4);
  return x;
}

TensorView Matrix(const std::vector<float>& values, int64_t n_rows) {
  const auto n = static_cast<int64_t>(values.size());
  return {DType::kF32, {n_rows, n / n_rows}, reinterpret_cast<const std::byte*>(values.data())};
}

class DeviceTest : public testing::Test {
 protected:
  Buffer Take(int64_t size_bytes) {
    return Buffer::Allocate(static_cast<size_t>(size_bytes), &device_).value();
  }
  std::vector<float> Floats(const void* from, int64_t n) {
    std::vector<float> x(n);
    EXPECT_TRUE(device_.Download(from, x.data(), n * 4).ok()) << device_.status();
    return x;
  }

  Device& device_ = KernelTestDevice();
};

// Later work neither changes fetched bytes nor is waited for with them.
TEST_F(DeviceTest, WhatIsFetchedIsOfItsPlaceInTheQueue) {
  constexpr int64_t kFloats = 1000;
  Buffer memory = Take(kFloats * 4);
  const std::vector<float> first = Random(kFloats, 1), second = Random(kFloats, 2);
  for (int round = 0; round < 3; ++round) {
    device_.Upload(first.data(), memory.data(), kFloats * 4);
    const auto fetched = device_.Fetch(memory.data(), kFloats * 4);
    device_.Upload(second.data(), memory.data(), kFloats * 4);
    const auto later = device_.Fetch(memory.data(), kFloats * 4);
    (void)device_.Fetch(memory.data(), 4);  // read by nobody
    device_.Upload(first.data(), memory.data(), kFloats * 4);
    for (const auto& [one, expected] : {std::pair(&fetched, &first), std::pair(&later, &second)}) {
      const auto bytes = (*one)->Wait();
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(std::memcmp(*bytes, expected->data(), kFloats * 4), 0);
    }
    EXPECT_EQ(Floats(memory.data(), kFloats), first);
  }
}

TEST_F(DeviceTest, MemoryIsAlignedAndZeroAlsoWhenUsedBefore) {
  for (const int64_t n : {1, 1000, 3 << 18}) {
    for (int i = 0; i < 2; ++i) {
      Buffer memory = Take(n * 4);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0u);
      EXPECT_EQ(Floats(memory.data(), n), std::vector<float>(n));
      device_.Upload(Random(n, 1).data(), memory.data(), n * 4);
    }
  }
}

TEST_F(DeviceTest, WhatCannotBeHadLeavesTheDeviceWell) {
  // This is more than any device has, then more than a host's address space holds.
  const auto memory = Buffer::Allocate((size_t{1} << 46) + (IsEmulated(device_) ? 1 : 0), &device_);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted) << memory.status();
  EXPECT_TRUE(device_.status().ok());
  EXPECT_EQ(Floats(Take(4).data(), 1), std::vector<float>(1));
}

TEST_F(DeviceTest, KnowsWhatIsFree) {
  const int64_t before = device_.free_bytes();
  EXPECT_GT(before, 0);
  if (IsEmulated(device_)) return;  // it has the host's
  {
    Buffer memory = Take(int64_t{64} << 20);
    EXPECT_LE(device_.free_bytes(), before - (int64_t{64} << 20));
  }
  ASSERT_TRUE(device_.Wait().ok());
  EXPECT_GE(device_.free_bytes(), before - (int64_t{32} << 20));
}

// This is more than pinned memory holds at a time, in pieces of odd sizes.
TEST_F(DeviceTest, UploadsInOrderAndLeavesTheCallersBytesToHim) {
  const int64_t n = (IsEmulated(device_) ? 1 : 20) * (int64_t{1} << 20) + 3;
  const std::vector<float> x = Random(n, 2);
  Buffer memory = Take(n * 4);
  std::vector<float> bytes;
  for (int64_t at = 0, step = 1; at < n; at += step, step = step * 3 + 1) {
    step = std::min(step, n - at);
    bytes.assign(x.begin() + at, x.begin() + at + step);
    device_.Upload(bytes.data(), memory.as<float>() + at, step * 4);
    std::fill(bytes.begin(), bytes.end(), -1.0f);
  }
  EXPECT_TRUE(Floats(memory.data(), n) == x);
}

TEST_F(DeviceTest, CopiesBehindWhatWasQueued) {
  const std::vector<float> x = Random(1000, 3);
  Buffer from = Take(4000), to = Take(4000);
  device_.Upload(x.data(), from.data(), 4000);
  device_.Copy(from.data(), to.data(), 4000);
  device_.Upload(Random(1000, 4).data(), from.data(), 4000);
  EXPECT_EQ(Floats(to.data(), 1000), x);
}

TEST_F(DeviceTest, RepeatedWorkReadsWhatIsThereNow) {
  const std::vector<float> weights = SmallIntegers(16 * 32, 5);
  ThreadPool pool(1);
  const auto weight =
      MakeDeviceWeight({Matrix(weights, 16)}, StorageType::kFloat32, pool, device_).value();
  DeviceArray<float> x(32), y(16);
  DeviceArray<uint16_t> rounded(16);
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> row = SmallIntegers(32, 10 + i);
    device_.Upload(row.data(), x.data(), 32 * 4);
    device_.Repeat(77, [&] {
      device_.Multiply({.weight = weight.get(),
                        .x = x.data(),
                        .ld_x = 32,
                        .n_rows = 1,
                        .y = y.data(),
                        .ld_y = 16});
      device_.kernels().round(device_, {y.data(), 16, rounded.data()});
    });
    const std::vector<uint16_t> got = rounded.Read();
    for (int64_t j = 0; j < 16; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < 32; ++k) sum += weights[j * 32 + k] * row[k];
      EXPECT_EQ(got[j], ToBFloat16(sum).bits) << i;
    }
  }
}

// This is more keys than a device keeps.
TEST_F(DeviceTest, ForgottenRepetitionsAreQueuedAgain) {
  DeviceArray<float> x(std::vector<float>{1});
  DeviceArray<uint16_t> out(300);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t key = 0; key < 300; ++key) {
      device_.Repeat(1000 + key, [&] {
        device_.kernels().round(device_, {x.data(), 1, out.data() + key});
      });
    }
    EXPECT_EQ(out.Read(), std::vector<uint16_t>(300, ToBFloat16(1).bits));
  }
}

struct ProductCase {
  int64_t n_out, n_in;
  StorageType type;
};

class DeviceProductTest : public DeviceTest, public testing::WithParamInterface<ProductCase> {
 protected:
  static constexpr int64_t kRows = 70;

  void SetUp() override {
    const auto& [n_out, n_in, type] = GetParam();
    // Three parts, as of queries, keys and values.
    const int64_t first = (n_out + 1) / 2, second = n_out / 2 - n_out / 4;
    const auto part = [&, width = n_in](int64_t from, int64_t to) {
      return std::vector<float>(weights_.begin() + from * width, weights_.begin() + to * width);
    };
    weights_ = Random(n_out * n_in, 6);
    const std::vector<float> a = part(0, first), b = part(first, first + second),
                             c = part(first + second, n_out);
    std::vector<TensorView> parts;
    for (const auto* p : {&a, &b, &c}) {
      if (!p->empty()) parts.push_back(Matrix(*p, static_cast<int64_t>(p->size()) / n_in));
    }
    ThreadPool pool(2);
    auto made = MakeDeviceWeight(parts, type, pool, device_);
    ASSERT_TRUE(made.ok()) << made.status();
    weight_ = *std::move(made);
    x_ = Random(kRows * n_in, 7);
    if (RowTypeOf(type) == StorageType::kBFloat16) {
      for (float& v : x_) v = ToFloat(ToBFloat16(v));
    }
    RoundWeights();
    Place();
  }

  // The stored numbers of the weight.
  void RoundWeights() {
    const auto& [n_out, n_in, type] = GetParam();
    if (type == StorageType::kBFloat16) {
      for (float& v : weights_) v = ToFloat(ToBFloat16(v));
    }
    if (!IsNarrow(type)) return;
    const TensorView whole = Matrix(weights_, n_out);
    ThreadPool pool(1);
    const std::vector<std::byte> narrow = NarrowWeight({&whole, 1}, type, pool);
    for (int64_t j = 0; j < n_out; ++j) {
      WidenRow({type, n_out, n_in}, narrow.data(), j, weights_.data() + j * n_in);
    }
  }

  void Place() {
    const auto bytes = static_cast<int64_t>(x_.size()) * StorageBytes(RowTypeOf(GetParam().type));
    x_there_ = Take(bytes);
    if (GetParam().type == StorageType::kFloat32) {
      device_.Upload(x_.data(), x_there_.data(), bytes);
      return;
    }
    std::vector<uint16_t> narrow;
    for (float v : x_) narrow.push_back(ToBFloat16(v).bits);
    device_.Upload(narrow.data(), x_there_.data(), bytes);
  }

  ProductArgs Args(int64_t first_row, int64_t n_rows, DeviceArray<float>& y) const {
    const auto& [n_out, n_in, type] = GetParam();
    return {.weight = weight_.get(),
            .x = x_there_.data() + first_row * n_in * StorageBytes(RowTypeOf(type)),
            .ld_x = n_in,
            .n_rows = n_rows,
            .y = y.data(),
            .ld_y = y.size() / n_rows};
  }

  // A sum, and how far fp32 may be from it: tensor cores cut off what they add.
  struct Sum {
    double value = 0, tolerance = 1e-6;
  };
  Sum Expected(int64_t row, int64_t j) const {
    const int64_t n_in = GetParam().n_in;
    Sum sum;
    for (int64_t k = 0; k < n_in; ++k) {
      const double product = double{x_[row * n_in + k]} * weights_[j * n_in + k];
      sum.value += product;
      sum.tolerance += 1e-6 * std::fabs(product);
    }
    return sum;
  }

  std::vector<float> weights_, x_;
  std::unique_ptr<DeviceWeight> weight_;
  Buffer x_there_;
};

TEST_P(DeviceProductTest, AddsBiasAndAccumulates) {
  const int64_t n_out = GetParam().n_out, n_rows = 3, ld = n_out + 4;
  const std::vector<float> bias = Random(n_out, 8), before = Random(n_rows * ld, 9);
  DeviceArray<float> bias_there(bias), plain(before), biased(before), added(before);
  device_.Multiply(Args(2, n_rows, plain));
  ProductArgs args = Args(2, n_rows, biased);
  args.bias = bias_there.data();
  device_.Multiply(args);
  args.y = added.data();
  args.into = GemmArgs::Into::kAccumulate;
  device_.Multiply(args);
  const std::vector<float> a = plain.Read(), b = biased.Read(), c = added.Read();
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < ld; ++j) {
      const int64_t at = i * ld + j;
      if (j >= n_out) {
        EXPECT_TRUE(a[at] == before[at] && b[at] == before[at] && c[at] == before[at]);
        continue;
      }
      const auto [expected, tolerance] = Expected(2 + i, j);
      ASSERT_NEAR(a[at], expected, tolerance);
      ASSERT_NEAR(b[at], expected + bias[j], tolerance);
      ASSERT_NEAR(c[at], expected + bias[j] + before[at], tolerance);
    }
  }
}

TEST_P(DeviceProductTest, RoundsItsResult) {
  const int64_t n_out = GetParam().n_out, n_rows = 5, ld = n_out + 4;
  DeviceArray<float> bias(Random(n_out, 8)), y(n_rows * ld), spare(n_rows * ld);
  ProductArgs args = Args(2, n_rows, y);
  args.bias = bias.data();
  device_.Multiply(args);
  DeviceArray<uint16_t> rounded(n_rows * ld);
  args.y = spare.data();
  args.rounded = rounded.data();
  device_.Multiply(args);
  const std::vector<float> exact = y.Read();
  const std::vector<uint16_t> got = rounded.Read();
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_out; ++j) {
      ASSERT_EQ(got[i * ld + j], ToBFloat16(exact[i * ld + j]).bits) << i << " " << j;
    }
  }
}

TEST_P(DeviceProductTest, ARowsBitsAreItsOwn) {
  const int64_t n_out = GetParam().n_out, row = 41;
  std::optional<std::vector<float>> alone;
  for (const auto& [first, n_rows] : std::vector<std::pair<int64_t, int64_t>>{
           {41, 1}, {40, 2}, {41, 3}, {38, 5}, {35, 16}, {20, 33}, {3, 64}, {0, kRows}}) {
    DeviceArray<float> y(n_rows * n_out);
    device_.Multiply(Args(first, n_rows, y));
    const std::vector<float> all = y.Read();
    const std::vector<float> got(all.begin() + (row - first) * n_out,
                                 all.begin() + (row - first + 1) * n_out);
    if (!alone) alone = got;
    ASSERT_EQ(std::memcmp(got.data(), alone->data(), got.size() * 4), 0) << n_rows;
  }
}

// The gates are the weight's first rows, the ups those behind them.
TEST_P(DeviceProductTest, Gates) {
  const auto& [n_out, n_in, type] = GetParam();
  const int64_t n_channels = n_out / 2, n_rows = 9;
  if (n_channels == 0 || type == StorageType::kFloat32) return;
  const std::vector<float> gate(weights_.begin(), weights_.begin() + n_channels * n_in);
  const std::vector<float> up(weights_.begin() + n_channels * n_in,
                              weights_.begin() + 2 * n_channels * n_in);
  ThreadPool pool(1);
  weight_ = MakeGatedWeight(Matrix(gate, n_channels), Matrix(up, n_channels), type, pool, device_)
                .value();
  DeviceArray<float> y(n_rows * weight_->n_out());
  DeviceArray<uint16_t> out(n_rows * n_channels);
  device_.MultiplyGated({Args(2, n_rows, y), out.data(), n_channels});
  const std::vector<uint16_t> got = out.Read();
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_channels; ++j) {
      const double g = Expected(2 + i, j).value, u = Expected(2 + i, n_channels + j).value;
      const double expected = g / (1 + std::exp(-g)) * u;
      // bf16 has 8 bits, and gates and ups may be rounded to it too; the weights of 8 bits were
      // rounded twice.
      const double rounding = IsNarrow(type) ? 3e-2 : 1e-2;
      ASSERT_NEAR(ToFloat(BFloat16{got[i * n_channels + j]}), expected,
                  rounding * (std::fabs(expected) + 1));
    }
  }
}

TEST_P(DeviceProductTest, NoRowsAreNoWork) {
  DeviceArray<float> y(1);
  ProductArgs args = Args(0, 1, y);
  args.n_rows = 0;
  device_.Multiply(args);
  EXPECT_EQ(y.Read(), std::vector<float>(1));
}

TEST_P(DeviceProductTest, TakesTheBytesThatAreForetold) {
  const auto& [n_out, n_in, type] = GetParam();
  EXPECT_EQ(weight_->size_bytes(), WeightBytes(type, n_out, n_in));
}

constexpr StorageType kF32 = StorageType::kFloat32, kBf16 = StorageType::kBFloat16,
                      kInt8 = StorageType::kInt8, kFloat8 = StorageType::kFloat8;
INSTANTIATE_TEST_SUITE_P(Shapes, DeviceProductTest,
                         testing::Values(ProductCase{1, 1, kF32}, ProductCase{1, 1, kBf16},
                                         ProductCase{33, 50, kF32}, ProductCase{33, 50, kBf16},
                                         ProductCase{96, 64, kF32}, ProductCase{96, 64, kBf16},
                                         ProductCase{256, 576, kF32}, ProductCase{256, 576, kBf16},
                                         ProductCase{1, 1, kInt8}, ProductCase{33, 50, kInt8},
                                         ProductCase{33, 72, kInt8}, ProductCase{256, 576, kInt8},
                                         ProductCase{1, 1, kFloat8}, ProductCase{33, 50, kFloat8},
                                         ProductCase{33, 72, kFloat8},
                                         ProductCase{256, 576, kFloat8}));

}  // namespace
}  // namespace lowkey
