#include "engine/kernels/cuda/products/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/weight.h"
#include "engine/kernels/narrow_weight.h"
#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

using Multiplier = void (*)(Device&, const ProductArgs&);

struct KernelCase {
  const char* name;
  Multiplier multiply;
  int64_t n_out, n_in;
  StorageType type;
};

std::vector<float> Random(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(n);
  for (float& v : x) v = ToFloat(ToBFloat16(uniform(engine)));
  return x;
}

// Returns the values as rows for weights of a type.
std::vector<std::byte> Stored(const std::vector<float>& x, StorageType weight_type) {
  const StorageType type = RowTypeOf(weight_type);
  std::vector<std::byte> out(x.size() * StorageBytes(type));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t bits = ToBFloat16(x[i]).bits;
    if (type == StorageType::kFloat32) std::memcpy(out.data() + i * 4, &x[i], 4);
    if (type == StorageType::kBFloat16) std::memcpy(out.data() + i * 2, &bits, 2);
  }
  return out;
}

// The emulated device's memory is the host's.
WarpgroupSpace Space() {
  static std::vector<float> sums(2 * 8 * 32 * 256);  // two tiles of 64 rows
  static std::vector<unsigned> counters(2);
  return {sums.data(), static_cast<int64_t>(sums.size()), counters.data(),
          static_cast<int64_t>(counters.size())};
}

void Warpgroups(Device& device, const ProductArgs& args) {
  MultiplyByWarpgroups(device, args, Space());
}

// Returns how a kernel computes gated products; nullptr where it computes none.
void (*Gated(Multiplier multiply))(Device&, const GatedProductArgs&) {
  if (multiply == MultiplyByTiles) return MultiplyGatedByTiles;
  if (multiply != Warpgroups) return nullptr;
  return [](Device& device, const GatedProductArgs& args) {
    MultiplyGatedByWarpgroups(device, args, Space());
  };
}

// Our own products, on the emulated grid.
class CudaProductsTest : public testing::TestWithParam<KernelCase> {
 protected:
  ~CudaProductsTest() override { emulated::SetThreadOrder(emulated::ThreadOrder::kForward); }

  void SetUp() override {
    const auto& [name, multiply, n_out, n_in, type] = GetParam();
    const TensorView view{
        DType::kF32, {n_out, n_in}, reinterpret_cast<const std::byte*>(weights_.data())};
    ThreadPool pool(1);
    weight_ = MakeDeviceWeight({view}, type, pool, device_).value();
    ASSERT_TRUE(device_.Wait().ok());
    for (int64_t j = 0; IsNarrow(type) && j < n_out; ++j) {  // the numbers of the stored weight
      WidenRow({type, n_out, n_in}, weight_->data(), j, weights_.data() + j * n_in);
    }
  }

  // Rows [first, first + n) of x.
  std::vector<float> Product(int64_t first, int64_t n, const float* bias = nullptr,
                             std::vector<float> y = {}) {
    const auto& [name, multiply, n_out, n_in, type] = GetParam();
    const bool adds = !y.empty();
    if (!adds) y.assign(n * n_out, std::nanf(""));
    const std::vector<std::byte> x =
        Stored({x_.begin() + first * n_in, x_.begin() + (first + n) * n_in}, type);
    multiply(device_, {weight_.get(), x.data(), n_in, n, y.data(), n_out, bias,
                       adds ? GemmArgs::Into::kAccumulate : GemmArgs::Into::kOverwrite});
    EXPECT_TRUE(device_.Wait().ok());
    return y;
  }

  static constexpr int64_t kRows = 70;
  EmulatedDevice device_;
  std::vector<float> weights_ = Random(GetParam().n_out * GetParam().n_in, 1);
  std::vector<float> x_ = Random(kRows * GetParam().n_in, 2);
  std::unique_ptr<DeviceWeight> weight_;
};

TEST_P(CudaProductsTest, MultipliesAddsBiasAndAccumulates) {
  const int64_t n_out = GetParam().n_out, n_in = GetParam().n_in;
  const std::vector<float> bias = Random(n_out, 3), before = Random(kRows * n_out, 4);
  const std::vector<float> plain = Product(0, kRows), sum = Product(0, kRows, bias.data(), before);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < n_out; ++j) {
      double expected = 0, tolerance = 1e-6;
      for (int64_t k = 0; k < n_in; ++k) {
        const double product = double{x_[i * n_in + k]} * weights_[j * n_in + k];
        expected += product;
        tolerance += 3e-7 * std::fabs(product);
      }
      ASSERT_NEAR(plain[i * n_out + j], expected, tolerance) << i << " " << j;
      ASSERT_NEAR(sum[i * n_out + j], expected + bias[j] + before[i * n_out + j], tolerance);
    }
  }
}

TEST_P(CudaProductsTest, RoundsItsResult) {
  const auto& [name, multiply, n_out, n_in, type] = GetParam();
  const std::vector<std::byte> x = Stored(x_, type);
  for (const int64_t n_rows : {int64_t{3}, kRows}) {
    const std::vector<float> exact = Product(0, n_rows);
    std::vector<uint16_t> rounded(n_rows * n_out, 1);
    multiply(device_, {.weight = weight_.get(),
                       .x = x.data(),
                       .ld_x = n_in,
                       .n_rows = n_rows,
                       .ld_y = n_out,
                       .rounded = rounded.data()});
    ASSERT_TRUE(device_.Wait().ok());
    for (size_t i = 0; i < rounded.size(); ++i) {
      ASSERT_EQ(rounded[i], ToBFloat16(exact[i]).bits) << n_rows << " rows, number " << i;
    }
  }
}

TEST_P(CudaProductsTest, ARowsBitsAreItsOwnInAnyOrderOfThreads) {
  const int64_t n_out = GetParam().n_out;
  const std::vector<float> alone = Product(17, 1);
  for (const auto order : {emulated::ThreadOrder::kForward, emulated::ThreadOrder::kBackward,
                           emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    for (const int64_t n : {1, 2, 9, 20, 40, 66}) {
      const int64_t first = std::max<int64_t>(17 - n / 2, 0), at = 17 - first;
      const std::vector<float> among = Product(first, n);
      const std::vector<float> row(among.begin() + at * n_out, among.begin() + (at + 1) * n_out);
      EXPECT_EQ(row, alone) << n;
    }
  }
}

// 200 rows are two tiles; a product leaves its counters as the next one needs them.
TEST(WarpgroupProductsTest, RowsKeepTheirBitsAmongManyAndAfterAProduct) {
  constexpr int64_t kOut = 144, kIn = 1096, kRows = 200;
  const std::vector<float> weights = Random(kOut * kIn, 1), x = Random(kRows * kIn, 2);
  const TensorView view{
      DType::kF32, {kOut, kIn}, reinterpret_cast<const std::byte*>(weights.data())};
  EmulatedDevice device;
  ThreadPool pool(1);
  const auto weight = MakeDeviceWeight({view}, StorageType::kBFloat16, pool, device).value();
  const std::vector<std::byte> rows = Stored(x, StorageType::kBFloat16);
  const auto product = [&](int64_t first, int64_t n) {
    std::vector<float> y(n * kOut, std::nanf(""));
    Warpgroups(device, {weight.get(), rows.data() + first * kIn * 2, kIn, n, y.data(), kOut});
    EXPECT_TRUE(device.Wait().ok());
    return y;
  };
  const std::vector<float> all = product(0, kRows);
  for (const int64_t row : {0, 191, 192, 199}) {
    for (int again = 0; again < 2; ++again) {
      const std::vector<float> alone = product(row, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * kOut)) << row;
    }
  }
}

// A number is the sum over k, one after the other, as the grid's matrix units add.
TEST(OrderedProductsTest, SumsFollowTheOrderOfK) {
  EmulatedDevice device;
  ThreadPool pool(1);
  // Blocks of one, two and four warps; the last has more columns, and a stage more k, than there
  // are.
  for (const auto& [n_out, n_in] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 8}, {33, 1096}, {4101, 24}, {8197, 136}}) {
    const std::vector<float> weights = Random(n_out * n_in, 1), x = Random(16 * n_in, 2),
                             bias = Random(n_out, 3);
    const TensorView view{
        DType::kF32, {n_out, n_in}, reinterpret_cast<const std::byte*>(weights.data())};
    const auto weight = MakeDeviceWeight({view}, StorageType::kBFloat16, pool, device).value();
    const std::vector<std::byte> rows = Stored(x, StorageType::kBFloat16);
    for (const auto& [n_rows, order] : std::vector<std::pair<int64_t, emulated::ThreadOrder>>{
             {1, emulated::ThreadOrder::kForward},
             {9, emulated::ThreadOrder::kBackward},
             {16, emulated::ThreadOrder::kShuffled}}) {
      emulated::SetThreadOrder(order);
      std::vector<float> y(n_rows * n_out, std::nanf("")), added(n_rows * n_out, 2.0f);
      std::vector<uint16_t> rounded(n_rows * n_out);
      ProductArgs args{weight.get(), rows.data(), n_in, n_rows, y.data(), n_out};
      MultiplyInOrder(device, args);
      args.rounded = rounded.data();
      MultiplyInOrder(device, args);
      args.rounded = nullptr;
      args.y = added.data();
      args.bias = bias.data();
      args.into = GemmArgs::Into::kAccumulate;
      MultiplyInOrder(device, args);
      ASSERT_TRUE(device.Wait().ok());
      for (int64_t i = 0; i < n_rows; ++i) {
        for (int64_t j = 0; j < n_out; ++j) {
          float expected = 0;
          for (int64_t k = 0; k < n_in; ++k) expected += x[i * n_in + k] * weights[j * n_in + k];
          const int64_t at = i * n_out + j;
          ASSERT_EQ(y[at], expected) << n_out << " x " << n_in << ": " << i << " " << j;
          ASSERT_EQ(rounded[at], ToBFloat16(expected).bits);
          ASSERT_EQ(added[at], 2.0f + (expected + bias[j]));
        }
      }
    }
  }
  emulated::SetThreadOrder(emulated::ThreadOrder::kForward);
}

// The gate is the expression of another kernel: a row's bits are the same by either way.
TEST_P(CudaProductsTest, GatesAsAnotherKernelDoes) {
  const auto& [name, multiply, n_out, n_in, type] = GetParam();
  const auto gated = Gated(multiply);
  if (gated == nullptr) return;
  const int64_t n_channels = n_out / 2 + 1;
  const std::vector<float> gate = Random(n_channels * n_in, 5), up = Random(n_channels * n_in, 6);
  const auto view = [&, width = n_in](const std::vector<float>& x) {
    return TensorView{
        DType::kF32, {n_channels, width}, reinterpret_cast<const std::byte*>(x.data())};
  };
  ThreadPool pool(1);
  weight_ = MakeGatedWeight(view(gate), view(up), type, pool, device_).value();
  const std::vector<float> bias = GatedBias(Random(n_channels, 7), Random(n_channels, 8));
  for (const int64_t n : {1, 9, 20, 40, 66}) {
    const std::vector<std::byte> x = Stored({x_.begin(), x_.begin() + n * n_in}, type);
    std::vector<float> y(n * weight_->n_out());
    std::vector<uint16_t> at_once(n * n_channels, 1), after(n * n_channels, 2);
    GatedProductArgs args{
        {weight_.get(), x.data(), n_in, n, y.data(), weight_->n_out(), bias.data()},
        at_once.data(),
        n_channels};
    gated(device_, args);
    ASSERT_TRUE(device_.Wait().ok());
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return v == 0; }));
    args.out = after.data();
    GateAfter(device_, args,
              [&](const ProductArgs& product) { GetParam().multiply(device_, product); });
    ASSERT_TRUE(device_.Wait().ok());
    EXPECT_EQ(at_once, after) << n;
  }
}

// A weight with numbers of every size, so that it has all codes.
TEST_P(CudaProductsTest, EveryCodeIsWidenedExactly) {
  const auto& [name, multiply, n_out, n_in, type] = GetParam();
  if (!IsNarrow(type)) return;
  std::vector<float> values(n_out * n_in);
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = static_cast<int>(i * 37 % 255);
    values[i] = type == StorageType::kInt8 ? static_cast<float>(code - 127)
                : code % 128 == 127        ? 0.0f
                                           : Float8ToFloat(static_cast<uint8_t>(code));
  }
  const int64_t group = type == StorageType::kInt8 ? kNarrowBlock : n_in;
  for (int64_t j = 0; j < n_out; ++j) {  // scales of 1
    for (int64_t k = 0; k < n_in; k += group) {
      values[j * n_in + k] = type == StorageType::kInt8 ? 127.0f : 448.0f;
    }
  }
  const TensorView view{
      DType::kF32, {n_out, n_in}, reinterpret_cast<const std::byte*>(values.data())};
  ThreadPool pool(1);
  weight_ = MakeDeviceWeight({view}, type, pool, device_).value();
  for (int64_t first = 0; first < n_in; first += kRows) {  // each row of x takes an input
    const int64_t n = std::min(kRows, n_in - first);
    std::fill(x_.begin(), x_.end(), 0.0f);
    for (int64_t i = 0; i < n; ++i) x_[i * n_in + first + i] = 1;
    const std::vector<float> y = Product(0, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n_out; ++j) {
        ASSERT_EQ(y[i * n_out + j], values[j * n_in + first + i]) << j << " " << first + i;
      }
    }
  }
}

constexpr StorageType kF32 = StorageType::kFloat32, kBf16 = StorageType::kBFloat16,
                      kInt8 = StorageType::kInt8, kFloat8 = StorageType::kFloat8;
INSTANTIATE_TEST_SUITE_P(Shapes, CudaProductsTest,
                         testing::Values(KernelCase{"plain", MultiplyPlainly, 1, 1, kF32},
                                         KernelCase{"plain", MultiplyPlainly, 19, 45, kF32},
                                         KernelCase{"plain", MultiplyPlainly, 19, 45, kBf16},
                                         KernelCase{"plain", MultiplyPlainly, 64, 96, kBf16},
                                         KernelCase{"tiles", MultiplyByTiles, 1, 8, kBf16},
                                         KernelCase{"tiles", MultiplyByTiles, 19, 40, kBf16},
                                         KernelCase{"tiles", MultiplyByTiles, 20, 320, kBf16},
                                         KernelCase{"tiles", MultiplyByTiles, 136, 584, kBf16},
                                         KernelCase{"warpgroups", Warpgroups, 1, 8, kBf16},
                                         KernelCase{"warpgroups", Warpgroups, 19, 40, kBf16},
                                         KernelCase{"warpgroups", Warpgroups, 20, 640, kBf16},
                                         KernelCase{"warpgroups", Warpgroups, 257, 584, kBf16},
                                         KernelCase{"plain", MultiplyPlainly, 1, 1, kInt8},
                                         KernelCase{"plain", MultiplyPlainly, 19, 145, kInt8},
                                         KernelCase{"plain", MultiplyPlainly, 1, 1, kFloat8},
                                         KernelCase{"plain", MultiplyPlainly, 19, 145, kFloat8},
                                         KernelCase{"tiles", MultiplyByTiles, 1, 8, kInt8},
                                         KernelCase{"tiles", MultiplyByTiles, 19, 40, kInt8},
                                         KernelCase{"tiles", MultiplyByTiles, 20, 320, kInt8},
                                         KernelCase{"tiles", MultiplyByTiles, 137, 1064, kInt8},
                                         KernelCase{"tiles", MultiplyByTiles, 1, 8, kFloat8},
                                         KernelCase{"tiles", MultiplyByTiles, 19, 40, kFloat8},
                                         KernelCase{"tiles", MultiplyByTiles, 20, 320, kFloat8},
                                         KernelCase{"tiles", MultiplyByTiles, 137, 1064, kFloat8}));

}  // namespace
}  // namespace lowkey
