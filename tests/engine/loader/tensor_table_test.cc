#include "engine/loader/tensor_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// A GGUF file on disk and its table.
struct OpenedGguf {
  explicit OpenedGguf(const GgufBuilder& builder) {
    WriteFileOrDie(directory.File("m.gguf"), builder.Build());
    const auto gguf = OpenGguf(directory.File("m.gguf"));
    EXPECT_TRUE(gguf.ok()) << gguf.status();
    table = TensorTable::OfGguf(*gguf);
  }
  TempDirectory directory;
  TensorTable table;
};

TEST(TensorTable, TakesTensorsOfTheRightShape) {
  OpenedGguf opened(TinyGguf());
  EXPECT_TRUE(opened.table.Has("output_norm.weight"));
  EXPECT_TRUE(opened.table.Take("output_norm.weight", {32}).ok());
  EXPECT_EQ(opened.table.Take("output.weight", {32, 16}).status().message(),
            "m.gguf: output.weight: shape [16, 32], expected [32, 16]");
  EXPECT_EQ(opened.table.Take("absent", {1}).status().message(),
            "m.gguf: absent: missing, expected a tensor of shape [1]");
  EXPECT_EQ(opened.table.files().size(), 1u);
}

TEST(TensorTable, TypesThatWeDoNotReadAreNamedWithThoseThatWeDo) {
  GgufBuilder b = TinyGguf();
  b.tensor("output.weight").type = 17;
  b.tensor("output_norm.weight").type = 26;
  OpenedGguf opened(b);
  EXPECT_EQ(opened.table.Take("output.weight", {16, 32}).status().message(),
            "m.gguf: output.weight: dtype IQ2_XS, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
            "Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4");
  EXPECT_THAT(std::string(opened.table.Take("output_norm.weight", {32}).status().message()),
              HasSubstr("dtype I32, expected F32"));
}

TEST(TensorTable, WhatIsLeftIsNamedUnlessHarmless) {
  GgufBuilder b;
  b.Zeros("kept", {2});
  b.Zeros("odd", {3, 2});
  OpenedGguf opened(b);
  EXPECT_TRUE(opened.table.Take("kept", {2}).ok());
  const auto none = [](std::string_view) { return false; };
  const auto odd = [](std::string_view name) { return name == "odd"; };
  EXPECT_EQ(opened.table.CheckNothingLeft(none, "why").message(),
            "m.gguf: odd: a tensor of shape [3, 2], expected none: why");
  EXPECT_TRUE(opened.table.CheckNothingLeft(odd, "why").ok());
}

TEST(TensorTable, DirectoryWithoutWeightsIsNotFound) {
  const TempDirectory directory;
  LoadAccount account;
  EXPECT_EQ(TensorTable::OpenDirectory(directory.path(), account).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lowkey
