#include "engine/kernels/cuda/grid/mma.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

struct MmaArgs {
  const float* a = nullptr;  // [16, 16]
  const float* b = nullptr;  // [16, 8], or its transpose [8, 16]
  float* c = nullptr;        // [16, 8]
};

// C += A B with A and B by way of shared memory, B as it is or transposed.
template <bool kTransposed>
__global__ void ProductKernel(MmaArgs args) {
  alignas(16) __shared__ uint16_t a[16 * 16];
  alignas(16) __shared__ uint16_t b[16 * 16];
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  for (int i = lane; i < 16 * 16; i += kWarp) {
    a[i] = FloatToBFloat16(args.a[i]);
    b[i] = 0;
  }
  __syncwarp();
  for (int i = lane; i < 16 * 8; i += kWarp) {
    const int row = kTransposed ? i / 8 : i / 16, column = kTransposed ? i % 8 : i % 16;
    b[row * 16 + column] = FloatToBFloat16(args.b[i]);
  }
  __syncwarp();
  uint32_t a_words[4], b_words[4];
  LoadTiles(a_words, a + lane % 16 * 16 + lane / 16 * 8);
  if constexpr (kTransposed) {
    LoadTilesTransposed(b_words, b + lane % 16 * 16 + lane / 16 * 8);
  } else {
    LoadTiles(b_words, b + (lane / 16 * 8 + lane % 8) * 16 + lane / 8 % 2 * 8);
  }
  float c[4];
  for (int i = 0; i < 4; ++i) c[i] = args.c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  MultiplyTiles(c, a_words, b_words[0], b_words[1]);
  for (int i = 0; i < 4; ++i) args.c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

struct PackArgs {
  uint32_t* packed = nullptr;
  float* power = nullptr;
};
__global__ void PackKernel(PackArgs args) {
  if (threadIdx.x != 0) return;
  args.packed[0] = PackBFloat16(1.0f, -2.0f);
  args.packed[1] = PackBFloat16(1.00390625f, 1.01171875f);  // ties: down, up
  args.power[0] = Exp2(0.0f);
  args.power[1] = Exp2(-3.0f);
  args.power[2] = Exp2(__uint_as_float(0xff800000u));
}

// Small whole numbers, so that every product and sum is exact.
std::vector<float> Numbers(int n, int modulus) {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7 % modulus - modulus / 2);
  return x;
}

TEST(MmaTest, MultipliesWhatItLoads) {
  const std::vector<float> a = Numbers(256, 13), b = Numbers(128, 11), start = Numbers(128, 5);
  std::vector<float> transpose(128), want = start;
  for (int k = 0; k < 16; ++k) {
    for (int j = 0; j < 8; ++j) transpose[j * 16 + k] = b[k * 8 + j];
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < 16; ++k) want[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
    }
  }
  EmulatedDevice device;
  std::vector<float> rows = start, columns = start;
  Launch(device, ProductKernel<true>, {.threads = 32}, {a.data(), b.data(), rows.data()});
  Launch(device, ProductKernel<false>, {.threads = 32},
         {a.data(), transpose.data(), columns.data()});
  ASSERT_TRUE(device.Wait().ok());
  EXPECT_EQ(rows, want);
  EXPECT_EQ(columns, want);
}

TEST(MmaTest, PacksAndRaises) {
  EmulatedDevice device;
  std::vector<uint32_t> packed(2);
  std::vector<float> power(3);
  Launch(device, PackKernel, {.threads = 32}, PackArgs{packed.data(), power.data()});
  ASSERT_TRUE(device.Wait().ok());
  EXPECT_EQ(packed[0], 0xc0003f80u);
  EXPECT_EQ(packed[1], 0x3f823f80u);
  EXPECT_EQ(power, (std::vector<float>{1.0f, 0.125f, 0.0f}));
}

}  // namespace
}  // namespace lowkey
