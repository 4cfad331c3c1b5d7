#include "engine/loader/gguf.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<GgufIndex> Parse(const std::string& bytes) {
  return ParseGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "f");
}

std::string ErrorOf(const std::string& bytes,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Parse(bytes).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

// Two tensors, to be made wrong.
GgufBuilder TwoTensors() {
  GgufBuilder b;
  b.Zeros("a", {3, 5});
  b.Zeros("b", {4});
  return b;
}

TEST(ParseGguf, ReversesTheFilesDimensions) {
  GgufBuilder b = TwoTensors();
  b.tensor("a").data[4] = 1;
  const std::string bytes = b.Build();
  const auto index = Parse(bytes);
  ASSERT_TRUE(index.ok()) << index.status();
  const TensorView& a = index->tensors.at("a");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.data[4], std::byte{1});
  EXPECT_EQ(index->tensors.at("b").data - a.data, 64);
  EXPECT_EQ(index->tensors.size(), 2u);
}

TEST(ParseGguf, Version2ReadsTheSame) {
  GgufBuilder b = TwoTensors();
  b.version = 2;
  EXPECT_EQ(Parse(b.Build())->tensors.size(), 2u);
}

TEST(ParseGguf, OtherVersionsAndByteOrdersAreUnimplemented) {
  GgufBuilder b = TwoTensors();
  for (const uint32_t version : {0u, 1u, 4u, 3u << 24}) {
    b.version = version;
    EXPECT_THAT(ErrorOf(b.Build(), absl::StatusCode::kUnimplemented),
                HasSubstr("expected 2 or 3 (little-endian)"));
  }
}

TEST(ParseGguf, AnotherMagicIsNoGguf) {
  GgufBuilder b = TwoTensors();
  b.magic = "GGML";
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("expected one that begins with \"GGUF\""));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no GGUF file"));
  EXPECT_THAT(ErrorOf("GGU"), HasSubstr("no GGUF file"));
}

TEST(ParseGguf, TruncationAnywhereIsRefused) {
  GgufBuilder b = TwoTensors();
  b.String("general.architecture", "llama");
  b.Strings("list", {"one", "two"});
  const std::string bytes = b.Build();
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(Parse(bytes.substr(0, n)).ok()) << n;
  EXPECT_TRUE(Parse(bytes).ok());
}

TEST(ParseGguf, CountsThatCannotFitAreRefusedUnread) {
  for (const uint64_t more : {uint64_t{1000}, uint64_t{1} << 40, uint64_t{1} << 63}) {
    GgufBuilder pairs = TwoTensors(), tensors = TwoTensors();
    pairs.extra_pairs = tensors.extra_tensors = more;
    EXPECT_THAT(ErrorOf(pairs.Build()), HasSubstr("metadata keys, expected what fits in"));
    EXPECT_THAT(ErrorOf(tensors.Build()), HasSubstr("tensors, expected what fits in"));
  }
}

TEST(ParseGguf, VocabularyWithoutTensorsIsAFile) {
  GgufBuilder b;
  b.Strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_TRUE(Parse(b.Build()).ok());
}

TEST(ParseGguf, DimensionsThatOverflowAreRefused) {
  GgufBuilder b = TwoTensors();
  b.tensor("a").dims = {uint64_t{1} << 62, 2};
  EXPECT_EQ(ErrorOf(b.Build()),
            "f: a: shape [2, 4611686018427387904] overflows, expected a product below 2^63 bytes");
  b.tensor("a").dims = {0, uint64_t{1} << 40, uint64_t{1} << 40};
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("overflows"));
  b.tensor("a").dims = {uint64_t{1} << 63};
  EXPECT_EQ(ErrorOf(b.Build()), "f: a: dimension 9223372036854775808, expected below 2^63");
  b.tensor("a").dims = {1, 1, 1, 1, 1};
  EXPECT_EQ(ErrorOf(b.Build()), "f: a: 5 dimensions, expected at most 4");
}

TEST(ParseGguf, ScalarsAndEmptyTensorsAreTensors) {
  GgufBuilder b = TwoTensors();
  b.tensor("a").dims = {};
  b.tensor("b").dims = {0, 7};
  const std::string bytes = b.Build();
  const auto index = Parse(bytes);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->tensors.at("a").size(), 1);
  EXPECT_EQ(index->tensors.at("b").size_bytes(), 0u);
}

TEST(ParseGguf, OffsetsAreAlignedInsideTheFileAndApart) {
  GgufBuilder b = TwoTensors();
  b.tensor("b").offset = 60;
  EXPECT_EQ(ErrorOf(b.Build()), "f: b: offset 60, expected a multiple of 32");
  b.tensor("b").offset = 32;
  EXPECT_EQ(ErrorOf(b.Build()), "f: b: data at 32, expected at least 60, where a ends");
  b.tensor("b").offset = 96;
  EXPECT_EQ(ErrorOf(b.Build()),
            "f: b: data at 96 of 16 bytes, expected it inside the 80 bytes of data in the file");
  b.tensor("b").offset = ~uint64_t{31};
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("data at 18446744073709551584 of 16 bytes"));
}

TEST(ParseGguf, AlignmentIsThatOfTheMetadata) {
  GgufBuilder b = TwoTensors();
  b.alignment = 8;
  b.Uint32("general.alignment", 8);
  const std::string bytes = b.Build();
  const auto index = Parse(bytes);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->tensors.at("b").data - index->tensors.at("a").data, 64);
  for (const uint32_t bad : {0u, 4u, 24u, 1u << 20, ~0u}) {
    b.Uint32("general.alignment", bad);
    EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("f: general.alignment: ")) << bad;
  }
}

TEST(ParseGguf, QuantizedRowsAreWholeBlocks) {
  GgufBuilder b;
  GgufBuilder::Tensor& t = b.tensor("q");
  t.type = 3;  // Q4_1: 20 bytes for 32 elements
  t.dims = {64, 3};
  t.data.assign(3 * 40, '\0');
  const std::string bytes = b.Build();
  EXPECT_EQ(Parse(bytes)->tensors.at("q").size_bytes(), 120u);
  EXPECT_EQ(Parse(bytes)->tensors.at("q").dtype, DType::kQ4_1);
  t.dims = {48, 4};
  EXPECT_EQ(ErrorOf(b.Build()), "f: q: shape [4, 48] of Q4_1, expected rows of a multiple of 32");
  t.dims = {};
  t.data.resize(20);
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("f: q: shape [] of Q4_1"));
}

TEST(ParseGguf, TypesThatWeDoNotReadAreNoted) {
  GgufBuilder b = TwoTensors();
  b.tensor("a").type = 17;
  b.tensor("b").type = 12345;
  const auto index = Parse(b.Build());
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE(index->tensors.empty());
  EXPECT_EQ(index->foreign_dtypes.at("a"), "IQ2_XS");
  EXPECT_EQ(index->foreign_dtypes.at("b"), "type 12345");
}

// Numbers and sizes of the format's types, as ggml defines them.
TEST(ParseGguf, QuantizedTypesHaveTheFormatsNumbers) {
  struct Type {
    uint32_t number, block_size, block_bytes;
    DType dtype;
  };
  for (const Type& type : {Type{10, 256, 84, DType::kQ2_K}, Type{11, 256, 110, DType::kQ3_K},
                           Type{20, 32, 18, DType::kIQ4_NL}, Type{23, 256, 136, DType::kIQ4_XS},
                           Type{39, 32, 17, DType::kMXFP4}}) {
    GgufBuilder b;
    b.tensor("q").type = type.number;
    b.tensor("q").dims = {2 * type.block_size, 3};
    b.tensor("q").data.assign(6 * type.block_bytes, '\0');
    const std::string bytes = b.Build();
    const auto index = Parse(bytes);
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ(index->tensors.at("q").dtype, type.dtype);
    EXPECT_EQ(index->tensors.at("q").size_bytes(), 6 * type.block_bytes);
  }
}

TEST(ParseGguf, TensorsAreNamedOnceAndBriefly) {
  GgufBuilder b = TwoTensors();
  b.tensor("b").name = "a";
  EXPECT_EQ(ErrorOf(b.Build()), "f: a: twice, expected each tensor once");
  b.tensor("a").name = std::string(257, 'x');
  EXPECT_EQ(ErrorOf(b.Build()), "f: tensor 0: no name of 1..256 bytes");
  GgufBuilder empty = TwoTensors();
  empty.tensor("b").name = "";
  EXPECT_EQ(ErrorOf(empty.Build()), "f: tensor 1: no name of 1..256 bytes");
}

}  // namespace
}  // namespace lowkey
