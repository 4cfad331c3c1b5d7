#include "engine/loader/safetensors.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

std::string File(const std::string& header, size_t data_bytes) {
  std::string bytes = LengthBytes(header.size()) + header;
  for (size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

absl::StatusOr<SafetensorsIndex> Parse(const std::string& bytes) {
  return ParseSafetensors({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                          "m.safetensors");
}

std::string ErrorOf(const std::string& bytes) {
  const auto index = Parse(bytes);
  EXPECT_EQ(index.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(index.status().message());
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat("{\"w\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}}");
}

TEST(ParseSafetensors, ReadsTensorsAndIgnoresMetadata) {
  const std::string bytes = File(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})",
      14);
  const auto index = Parse(bytes);
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ(index->tensors.size(), 2u);
  const TensorView& b = index->tensors.at("b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(reinterpret_cast<const char*>(b.data), bytes.data() + bytes.size() - 6);
}

TEST(ParseSafetensors, AllowsScalarsEmptyTensorsGapsAndMisalignedData) {
  const auto index = Parse(File(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[3,7]},)"
                                R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[5,5]}}  )",
                                9));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->tensors.at("s").size(), 1);
  EXPECT_EQ(index->tensors.at("e").size(), 0);
}

TEST(ParseSafetensors, DtypesThatWeDoNotComputeWithAreKeptApart) {
  const auto index = Parse(File(Entry("F8_E4M3", "[4]", "[0,4]"), 4));
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE(index->tensors.empty());
  EXPECT_EQ(index->foreign_dtypes.at("w"), "F8_E4M3");
}

TEST(ParseSafetensors, RejectsFilesTooShortForALength) {
  EXPECT_EQ(ErrorOf(""), "m.safetensors: 0 bytes, expected at least 8");
  EXPECT_EQ(ErrorOf("1234567"), "m.safetensors: 7 bytes, expected at least 8");
}

TEST(ParseSafetensors, RejectsHeaderLongerThanFile) {
  EXPECT_EQ(ErrorOf(LengthBytes(3) + "{}"),
            "m.safetensors: header of 3 bytes, expected at most 2 in a file of 10 bytes");
  EXPECT_THAT(ErrorOf(LengthBytes(UINT64_MAX) + "{}"), HasSubstr("header of 18446744073709551615"));
  EXPECT_THAT(ErrorOf(LengthBytes(UINT64_MAX - 7) + "{}"), HasSubstr("expected at most 2"));
}

TEST(ParseSafetensors, RejectsHeaderOverTheFormatsCap) {
  const std::string bytes = LengthBytes(100'000'001) + std::string(100'000'001, ' ');
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("expected at most 100000000"));
}

TEST(ParseSafetensors, RejectsHeadersThatAreNoObjectOfObjects) {
  EXPECT_THAT(ErrorOf(File("", 0)), HasSubstr("m.safetensors: not JSON at line 1, column 1: "));
  EXPECT_EQ(ErrorOf(File("[]", 0)), "m.safetensors: array, expected a JSON object");
  EXPECT_EQ(ErrorOf(File("{\"w\":3}", 0)), "m.safetensors: w: number, expected an object");
  EXPECT_THAT(ErrorOf(File(Entry("F32", "[[1]]", "[0,4]"), 4)), HasSubstr("nested deeper"));
}

TEST(ParseSafetensors, RejectsRepeatedNames) {
  const std::string w = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(ErrorOf(File("{" + w + "," + w + "}", 4)), "m.safetensors: key \"w\" appears twice");
}

TEST(ParseSafetensors, RejectsUnknownAndMissingDtypes) {
  EXPECT_EQ(ErrorOf(File(Entry("F33", "[1]", "[0,4]"), 4)),
            "m.safetensors: w: dtype: \"F33\", expected a dtype of the safetensors format");
  EXPECT_THAT(ErrorOf(File(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4)),
              HasSubstr("w: dtype: missing"));
}

TEST(ParseSafetensors, RejectsShapesThatAreNotSizes) {
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "3", "{}", "[true]",
                            "[9223372036854775808]", "[1,1,1,1,1,1,1,1,1]"}) {
    EXPECT_THAT(ErrorOf(File(Entry("F32", shape, "[0,4]"), 4)), HasSubstr("w: shape: ")) << shape;
  }
}

TEST(ParseSafetensors, RejectsShapesWhoseProductOverflows) {
  EXPECT_EQ(ErrorOf(File(Entry("F32", "[4294967296,2147483648]", "[0,4]"), 4)),
            "m.safetensors: w: shape [4294967296, 2147483648] overflows, expected a product below "
            "2^63 bytes");
  // 2^64 elements would be none, modulo 2^64.
  EXPECT_THAT(ErrorOf(File(Entry("F32", "[4294967296,4294967296]", "[0,0]"), 4)),
              HasSubstr("overflows"));
  EXPECT_THAT(ErrorOf(File(Entry("I64", "[1152921504606846976]", "[0,0]"), 4)),
              HasSubstr("overflows"));
}

TEST(ParseSafetensors, RejectsOffsetsOutsideTheDataOrOutOfOrder) {
  EXPECT_EQ(ErrorOf(File(Entry("F32", "[2]", "[0,8]"), 7)),
            "m.safetensors: w: data_offsets: [0,8], expected begin <= end <= 7, the bytes of data "
            "in the file");
  EXPECT_THAT(ErrorOf(File(Entry("F32", "[1]", "[4,0]"), 8)), HasSubstr("begin <= end"));
  EXPECT_THAT(ErrorOf(File(Entry("F32", "[1]", "[18446744073709551612,0]"), 8)),
              HasSubstr("data_offsets"));
  for (const char* offsets : {"[]", "[0]", "[0,4,8]", "[-4,0]", "4", "null"}) {
    EXPECT_THAT(ErrorOf(File(Entry("F32", "[1]", offsets), 8)), HasSubstr("w: data_offsets: "));
  }
}

TEST(ParseSafetensors, RejectsDataOfAnotherSizeThanTheShape) {
  EXPECT_EQ(ErrorOf(File(Entry("F16", "[3]", "[0,4]"), 8)),
            "m.safetensors: w: 4 bytes of data, expected 6 for shape [3] of F16");
}

TEST(ParseSafetensors, RejectsOverlappingTensors) {
  EXPECT_EQ(ErrorOf(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                         12)),
            "m.safetensors: b: data starts at 4, expected at least 8, where a ends");
}

TEST(WriteSafetensors, ReadsBackAsWritten) {
  const TempDirectory directory;
  const float a[] = {1.0f, -2.0f, 3.5f};
  const int32_t b[] = {7, -8};
  const std::pair<std::string, TensorView> tensors[] = {
      {"a", {DType::kF32, {3, 1}, reinterpret_cast<const std::byte*>(a)}},
      {"odd \"name\"\n", {DType::kI32, {2}, reinterpret_cast<const std::byte*>(b)}},
      {"none", {DType::kBF16, {0}, nullptr}}};
  const std::string path = directory.File("t.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  const auto file = OpenSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->index.tensors.size(), 3u);
  for (const auto& [name, written] : tensors) {
    const TensorView& read = file->index.tensors.at(name);
    EXPECT_EQ(read.dtype, written.dtype);
    EXPECT_EQ(read.shape, written.shape);
    if (written.data == nullptr) continue;
    EXPECT_EQ(std::memcmp(read.data, written.data, written.size_bytes()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data) % 4, 0u);
  }
}

TEST(WriteSafetensors, RefusesRepeatedNamesNegativeSizesAndMissingDirectories) {
  const TempDirectory directory;
  const float x = 0.0f;
  const TensorView one{DType::kF32, {1}, reinterpret_cast<const std::byte*>(&x)};
  const std::string path = directory.File("t");
  EXPECT_EQ(WriteSafetensors(path, {{"a", one}, {"a", one}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors(path, {{"a", {DType::kF32, {-1}, one.data}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors(directory.File("absent/t"), {{"a", one}}).code(),
            absl::StatusCode::kUnavailable);
}

TEST(SafetensorsWriter, WantsExactlyTheAnnouncedBytes) {
  const TempDirectory directory;
  const TensorSpec spec{"a", DType::kF32, {2}};
  auto writer = SafetensorsWriter::Create(directory.File("t"), {spec});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::byte bytes[9] = {};
  EXPECT_EQ(writer->Append({bytes, 9}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(writer->Append({bytes, 5}).ok());
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(writer->Append({bytes, 3}).ok());
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_TRUE(OpenSafetensors(directory.File("t")).ok());
}

}  // namespace
}  // namespace lowkey
