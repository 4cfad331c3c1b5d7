// Quantized blocks against what the Python package `gguf` makes of them (data/make_quantized.py).
#include "engine/base/codes/quantized.h"

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/tensor.h"
#include "gtest/gtest.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

constexpr int64_t kBlocks = 4;
constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                            DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,   DType::kQ6_K,
                            DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS,
                            DType::kMXFP4};

struct Golden {
  std::string blocks;
  std::vector<float> floats;
};

Golden ReadGolden(DType wanted) {
  std::ifstream file(SourcePath("tests/engine/base/codes/data/quantized.bin"), std::ios::binary);
  Golden golden;
  for (DType dtype : kTypes) {
    golden.blocks.resize(kBlocks * DTypeBytes(dtype));
    golden.floats.resize(kBlocks * DTypeBlockSize(dtype));
    file.read(golden.blocks.data(), static_cast<std::streamsize>(golden.blocks.size()));
    file.read(reinterpret_cast<char*>(golden.floats.data()),
              static_cast<std::streamsize>(golden.floats.size() * sizeof(float)));
    EXPECT_TRUE(file.good());
    if (dtype == wanted) return golden;
  }
  EXPECT_EQ(file.peek(), EOF);
  return golden;
}

class QuantizedType : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, QuantizedType, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(QuantizedType, EqualsTheReferenceToTheBit) {
  const Golden golden = ReadGolden(GetParam());
  std::vector<float> floats(golden.floats.size());
  Dequantize(GetParam(), reinterpret_cast<const std::byte*>(golden.blocks.data()), kBlocks,
             floats.data());
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(std::memcmp(&floats[i], &golden.floats[i], sizeof(float)), 0)
        << i << ": " << floats[i] << ", expected " << golden.floats[i];
  }
}

TEST_P(QuantizedType, RowsOfAnUnalignedTensorAreWholeBlocks) {
  const Golden golden = ReadGolden(GetParam());
  const std::string unaligned = " " + golden.blocks;
  const int64_t n = 2 * DTypeBlockSize(GetParam());
  const TensorView t{GetParam(), {2, n}, reinterpret_cast<const std::byte*>(unaligned.data()) + 1};
  EXPECT_EQ(t.size_bytes(), golden.blocks.size());
  std::vector<float> row(n);
  LoadRow(t, 1, row.data());
  EXPECT_EQ(std::memcmp(row.data(), golden.floats.data() + n, n * sizeof(float)), 0);
  LoadFloats(t, n / 2, n, row.data());
  EXPECT_EQ(std::memcmp(row.data(), golden.floats.data() + n / 2, n * sizeof(float)), 0);
}

}  // namespace
}  // namespace lowkey
