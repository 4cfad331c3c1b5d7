// Files that ask for far more memory or work than their size justifies are refused before they get
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/loader/gguf_files.h"
#include "engine/loader/safetensors.h"
#include "engine/loader/tensor_table.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/peak_memory.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

// A safetensors file of empty tensors with these names.
std::string EmptyTensors(const std::vector<std::string>& names) {
  std::string header = "{";
  for (const std::string& name : names) {
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", name,
                    R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  header += "}";
  return GgufBuilder::Bytes(static_cast<uint64_t>(header.size())) + header;
}

std::vector<std::string> Names(int count, const std::string& prefix = "t") {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(prefix, i));
  return names;
}

absl::Status ParseHeader(const std::string& bytes, size_t max_bytes) {
  LoadAccount account(max_bytes);
  return ParseSafetensors({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                          "m.safetensors", account)
      .status();
}

TEST(CostlyFilesTest, TensorsArePaidFor) {
  const std::string file = EmptyTensors(Names(2000));
  EXPECT_TRUE(ParseHeader(file, 8 * kMiB).ok());
  absl::Status status;
  EXPECT_LE(PeakBytes([&] { status = ParseHeader(file, kMiB); }), 2 * kMiB);
  EXPECT_THAT(status.message(), HasSubstr("m.safetensors: takes over 1048576 bytes of memory"));
}

TEST(CostlyFilesTest, MoreTensorsThanAnyModelHasFitTheAccount) {
  EXPECT_TRUE(ParseHeader(EmptyTensors(Names(40000)), LoadAccount::kMaxBytes / 4).ok());
}

TEST(CostlyFilesTest, NamesOfTensorsAreShort) {
  EXPECT_TRUE(ParseHeader(EmptyTensors({std::string(1024, 'a')}), kMiB).ok());
  const absl::Status status = ParseHeader(EmptyTensors({std::string(1025, 'a')}), kMiB);
  EXPECT_THAT(status.message(), HasSubstr("a name of 1025 bytes, expected at most 1024"));
  EXPECT_LT(status.message().size(), 300u);
}

TEST(CostlyFilesTest, HeadersOfAllShardsArePaidForTogether) {
  TempDirectory directory;
  std::string map;
  for (int shard = 0; shard < 20; ++shard) {
    const std::string name = absl::StrCat("s", shard);
    WriteFileOrDie(directory.File(name), EmptyTensors(Names(500, name + "t")));
    absl::StrAppend(&map, shard > 0 ? "," : "", "\"", name, "t0\":\"", name, "\"");
  }
  WriteFileOrDie(directory.File("model.safetensors.index.json"),
                 absl::StrCat(R"({"weight_map":{)", map, "}}"));
  LoadAccount enough(32 * kMiB), too_little(4 * kMiB);
  EXPECT_TRUE(TensorTable::OpenDirectory(directory.path(), enough).ok());
  const absl::Status status = TensorTable::OpenDirectory(directory.path(), too_little).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("takes over 4194304 bytes"));
}

TEST(CostlyFilesTest, TwoNamesOfOneShardAreRefused) {
  for (const bool is_hard : {true, false}) {
    TempDirectory directory;
    WriteFileOrDie(directory.File("a"), EmptyTensors({"x", "y"}));
    if (is_hard) {
      std::filesystem::create_hard_link(directory.File("a"), directory.File("b"));
    } else {
      std::filesystem::create_symlink("a", directory.File("b"));
    }
    WriteFileOrDie(directory.File("model.safetensors.index.json"),
                   R"({"weight_map":{"x":"a","y":"b"}})");
    LoadAccount account;
    EXPECT_THAT(TensorTable::OpenDirectory(directory.path(), account).status().message(),
                HasSubstr("index.json: b: the same file as a, expected another"));
  }
}

// The file takes a few kilobytes of the disk; what was not written reads as zeros: empty strings.
TEST(CostlyFilesTest, ASparseGgufPaysForItsTokens) {
  constexpr uint64_t kTokens = 190'000'000;
  TempDirectory directory;
  const std::string path = directory.File("m.gguf");
  std::string bytes = "GGUF" + GgufBuilder::Bytes(uint32_t{3}) + GgufBuilder::Bytes(uint64_t{0}) +
                      GgufBuilder::Bytes(uint64_t{1});
  bytes += GgufBuilder::Bytes(std::string_view("tokenizer.ggml.tokens"));
  bytes += GgufBuilder::Bytes(static_cast<uint32_t>(GgufType::kArray));
  bytes += GgufBuilder::Bytes(static_cast<uint32_t>(GgufType::kString));
  bytes += GgufBuilder::Bytes(kTokens);
  WriteFileOrDie(path, bytes);
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(bytes.size() + 8 * kTokens)), 0);
  absl::Status status;
  EXPECT_LE(PeakBytes([&] { status = OpenGguf(path).status(); }), kMiB);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("m.gguf: tokenizer.ggml.tokens: an array of 190000000: "
                                          "takes over 536870912 bytes of memory"));
}

TEST(CostlyFilesTest, AVocabularyLargerThanAnyModelsFitsTheAccount) {
  GgufBuilder builder = TinyGguf();
  builder.Strings("tokenizer.ggml.tokens", std::vector<std::string>(300'000));
  builder.Strings("tokenizer.ggml.merges", std::vector<std::string>(600'000));
  builder.Float32s("tokenizer.ggml.scores", std::vector<float>(300'000));
  builder.Int32s("tokenizer.ggml.token_type", std::vector<int32_t>(300'000));
  const std::string bytes = builder.Build();
  EXPECT_TRUE(
      ParseGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "m.gguf").ok());
}

TEST(CostlyFilesTest, ATruncatedFileIsReadWithAnError) {
  TempDirectory directory;
  const std::string path = directory.File("f");
  std::string bytes(20'003, 'x');
  bytes.replace(20'000, 3, "end");
  WriteFileOrDie(path, bytes);
  const auto file = MappedFile::Open(path).value();
  std::array<std::byte, 3> read;
  const std::byte* const from = file->data() + 20'000;
  ASSERT_TRUE(file->Read(from, absl::MakeSpan(read)).ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.data()), 3), "end");
  EXPECT_TRUE(file->Holds({from, 3}));
  EXPECT_FALSE(file->Holds({from, 4}));
  ASSERT_EQ(truncate(path.c_str(), 20'001), 0);
  EXPECT_EQ(file->Read(from, absl::MakeSpan(read)),
            absl::UnavailableError("f: has become shorter since it was loaded"));
}

}  // namespace
}  // namespace lowkey
