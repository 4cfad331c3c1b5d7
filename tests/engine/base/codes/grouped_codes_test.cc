// Hand-made words; tests/engine/loader/grouped_checkpoint_test.cc compares with packed checkpoints.
#include "engine/base/codes/grouped_codes.h"

#include <array>

#include "engine/base/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

template <typename T>
const std::byte* Bytes(const T& array) {
  return reinterpret_cast<const std::byte*>(array.data());
}

// Eight outputs of eight inputs, in one group.
struct OneGroup {
  explicit OneGroup(DType dtype) {
    matrix.dtype = dtype;
    matrix.n_out = matrix.n_in = matrix.group_size = 8;
    matrix.codes = Bytes(codes);
    matrix.zeros = Bytes(zeros);
    matrix.scales = Bytes(scales);
    matrix.scale_dtype = DType::kF32;
  }
  std::vector<int> Codes(int64_t row) const {
    std::array<uint8_t, 8> out;
    LoadCodes(matrix, row, out.data());
    return {out.begin(), out.end()};
  }
  std::vector<int32_t> Zeros() const {
    std::vector<int32_t> all;
    for (int64_t row = 0; row < 8; ++row) {
      float scale;
      LoadGroups(matrix, row, &scale, &all.emplace_back());
      EXPECT_EQ(scale, scales[row]);
    }
    return all;
  }

  std::array<uint32_t, 8> codes = {};
  std::array<uint32_t, 1> zeros = {0x76543210};
  std::array<float, 8> scales = {1, 2, 3, 4, 5, 6, 7, 8};
  GroupedCodes matrix;
};

TEST(GroupedCodes, AwqHoldsEightOutputsOfAnInputOutOfOrder) {
  OneGroup of(DType::kAwq4);
  of.codes[3] = 0xfedcba98;
  EXPECT_THAT(of.Codes(0), ElementsAre(0, 0, 0, 8, 0, 0, 0, 0));
  EXPECT_EQ(of.Codes(2)[3], 9);
  EXPECT_EQ(of.Codes(1)[3], 12);
  EXPECT_EQ(of.Codes(7)[3], 15);
  EXPECT_THAT(of.Zeros(), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(GroupedCodes, GptqHoldsEightInputsOfAnOutputInOrder) {
  OneGroup of(DType::kGptq4);
  of.codes[3] = 0xfedcba98;
  EXPECT_THAT(of.Codes(3), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(of.Codes(2), Each(0));
  EXPECT_THAT(of.Zeros(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  of.matrix.zero_offset = 1;
  EXPECT_THAT(of.Zeros(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(GroupedCodes, AWordOf8BitsHoldsFourInputsOfAnOutput) {
  const std::array<uint32_t, 8> codes = {0x03020100, 0, 0, 0, 0xffc08040, 0, 0, 0};
  const std::array<uint32_t, 1> zeros = {0xff7f0100};
  const std::array<float, 4> scales = {1, 2, 4, 8};
  GroupedCodes matrix;
  matrix.dtype = DType::kGptq8;
  matrix.n_out = 4;
  matrix.n_in = matrix.group_size = 8;
  matrix.codes = Bytes(codes);
  matrix.zeros = Bytes(zeros);
  matrix.scales = Bytes(scales);
  matrix.scale_dtype = DType::kF32;
  std::array<uint8_t, 8> row;
  LoadCodes(matrix, 0, row.data());
  EXPECT_THAT(row, ElementsAre(0, 1, 2, 3, 0x40, 0x80, 0xc0, 0xff));
  LoadCodes(matrix, 1, row.data());
  EXPECT_THAT(row, Each(0));
  matrix.zero_offset = 1;
  float scale;
  int32_t zero;
  LoadGroups(matrix, 2, &scale, &zero);
  EXPECT_EQ(scale, 4);
  EXPECT_EQ(zero, 128);
  std::vector<float> numbers(8);
  LoadRow(matrix, 0, numbers.data());
  EXPECT_THAT(numbers, ElementsAre(-1, 0, 1, 2, 63, 127, 191, 254));
}

TEST(GroupedCodes, ARowIsTheScaleTimesTheDistanceFromZero) {
  OneGroup of(DType::kGptq4);
  of.codes[3] = 0xfedcba98;
  TensorView view{DType::kGptq4, {8, 8}, of.matrix.codes};
  view.grouped = std::make_shared<const GroupedCodes>(of.matrix);
  EXPECT_EQ(view.size_bytes(), 32u);
  std::vector<float> row(8);
  LoadRow(view, 3, row.data());
  EXPECT_THAT(row, ElementsAre(20, 24, 28, 32, 36, 40, 44, 48));
}

TEST(GroupedCodes, TheLastGroupMayBeShorter) {
  GroupedCodes matrix;
  matrix.n_in = 40;
  matrix.group_size = 32;
  EXPECT_EQ(matrix.n_groups(), 2);
  EXPECT_EQ(matrix.GroupOf(31), 0);
  EXPECT_EQ(matrix.GroupOf(39), 1);
  matrix.groups.assign(40, 0);
  matrix.groups[5] = 1;
  EXPECT_EQ(matrix.GroupOf(5), 1);
}

}  // namespace
}  // namespace lowkey
