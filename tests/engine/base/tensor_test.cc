#include "engine/base/tensor.h"

#include <cstring>

#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(TensorView, SizesOfScalarsEmptiesAndMatrices) {
  EXPECT_EQ((TensorView{DType::kF32, {}, nullptr}.size()), 1);
  EXPECT_EQ((TensorView{DType::kF32, {3, 0}, nullptr}.size()), 0);
  EXPECT_EQ((TensorView{DType::kBF16, {3, 5}, nullptr}.size_bytes()), 30u);
}

TEST(ShapeString, WritesAList) {
  EXPECT_EQ(ShapeString({}), "[]");
  EXPECT_EQ(ShapeString({4096, 1024}), "[4096, 1024]");
}

// Elements start one byte off any alignment, as in a file with an odd header.
class UnalignedTensor : public ::testing::TestWithParam<DType> {};

TEST_P(UnalignedTensor, LoadsItsElementsAsFloats) {
  const float values[] = {1.0f, -2.5f, 0.0f, 1024.0f, 0.09375f};  // exact in every dtype
  std::byte bytes[32] = {};
  for (int i = 0; i < 5; ++i) {
    const uint16_t half =
        GetParam() == DType::kBF16 ? ToBFloat16(values[i]).bits : FloatToHalf(values[i]);
    if (GetParam() == DType::kF32) {
      std::memcpy(bytes + 1 + 4 * i, &values[i], 4);
    } else {
      std::memcpy(bytes + 1 + 2 * i, &half, 2);
    }
  }
  const TensorView t{GetParam(), {5}, bytes + 1};
  for (int i = 0; i < 5; ++i) {
    float x = 0;
    LoadFloats(t, i, 1, &x);
    EXPECT_EQ(x, values[i]);
  }
  float middle[3];
  LoadFloats(t, 1, 3, middle);
  EXPECT_EQ(middle[0], -2.5f);
  EXPECT_EQ(middle[2], 1024.0f);
  LoadFloats(t, 5, 0, nullptr);
}

TEST(LoadRow, FindsInterleavedRowsOfEveryHead) {
  // Heads of four rows: of the first, rows 0 and 1 stand at places 0 and 2.
  float stored[8][2];
  const int row_at[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int place = 0; place < 8; ++place) {
    stored[place][0] = static_cast<float>(row_at[place]);
    stored[place][1] = -stored[place][0];
  }
  TensorView t{DType::kF32, {8, 2}, reinterpret_cast<const std::byte*>(stored)};
  t.interleaved_rows = 4;
  for (int row = 0; row < 8; ++row) {
    float out[2];
    LoadRow(t, row, out);
    EXPECT_EQ(out[0], static_cast<float>(row));
    EXPECT_EQ(out[1], static_cast<float>(-row));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, UnalignedTensor,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16));

}  // namespace
}  // namespace lowkey
