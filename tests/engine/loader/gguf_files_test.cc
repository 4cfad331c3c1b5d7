#include "engine/loader/gguf_files.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/model_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

GgufBuilder OneTensor(const std::string& name = "a") {
  GgufBuilder b;
  b.Zeros(name, {3, 5});
  return b;
}

// A model in three parts of one tensor each, to be made wrong.
class SplitGguf : public ::testing::Test {
 protected:
  SplitGguf() {
    for (int i = 0; i < 3; ++i) {
      parts_[i] = OneTensor(absl::StrCat("t", i));
      parts_[i].Set("split.no", GgufType::kUint16, static_cast<uint16_t>(i));
      parts_[i].Set("split.count", GgufType::kUint16, uint16_t{3});
      parts_[i].Set("split.tensors.count", GgufType::kInt32, int32_t{3});
    }
    parts_[0].String("general.name", "split");
  }

  static std::string Name(int number) { return absl::StrFormat("m-%05d-of-00003.gguf", number); }
  std::string File(int number) const { return directory_.File(Name(number)); }
  void Write() const {
    for (int i = 0; i < 3; ++i) WriteFileOrDie(File(i + 1), parts_[i].Build());
  }
  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) const {
    Write();
    return ErrorOf(File(1), code);
  }
  static std::string ErrorOf(const std::string& path,
                             absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = OpenGguf(path).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  TempDirectory directory_;
  GgufBuilder parts_[3];
};

TEST(FindGguf, IsTheFileOrTheOnlyOneOfADirectoryWithoutAConfig) {
  const TempDirectory directory;
  EXPECT_EQ(*FindGguf(directory.path()), std::nullopt);
  EXPECT_EQ(*FindGguf(directory.File("absent.gguf")), std::nullopt);
  WriteFileOrDie(directory.File("a.gguf"), "x");
  EXPECT_EQ(*FindGguf(directory.path()), directory.File("a.gguf"));
  EXPECT_EQ(*FindGguf(directory.File("a.gguf")), directory.File("a.gguf"));
  WriteFileOrDie(directory.File("b.gguf"), "x");
  EXPECT_THAT(std::string(FindGguf(directory.path()).status().message()),
              HasSubstr("holds a.gguf and b.gguf, expected one .gguf file or the parts of one"));
  WriteFileOrDie(directory.File("config.json"), "{}");
  EXPECT_EQ(*FindGguf(directory.path()), std::nullopt);
  EXPECT_EQ(*FindGguf(directory.File("config.json")), std::nullopt);
}

TEST(OpenGguf, MapsAFileAndNamesItInErrors) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("a.gguf"), OneTensor().Build());
  const auto gguf = OpenGguf(directory.File("a.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->index.tensors.size(), 1u);
  EXPECT_TRUE(gguf->other_files.empty());
  WriteFileOrDie(directory.File("a.gguf"), "no");
  EXPECT_THAT(std::string(OpenGguf(directory.File("a.gguf")).status().message()),
              HasSubstr("a.gguf: no GGUF file"));
}

TEST(OpenModelFiles, KnowsTheFileOfWeightsHoweverItWasNamed) {
  const TempDirectory directory;
  EXPECT_EQ(OpenModelFiles(directory.path())->weights, directory.path());
  WriteFileOrDie(directory.File("a.gguf"), OneTensor().Build());
  for (const std::string& path : {directory.path(), directory.File("a.gguf")}) {
    const auto files = OpenModelFiles(path);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->path, path);
    EXPECT_EQ(files->weights, directory.File("a.gguf"));
  }
}

TEST(OpenGguf, OnePartIsAFileOfAnyName) {
  const TempDirectory directory;
  GgufBuilder b = OneTensor();
  b.Uint32("split.count", 1);
  for (const char* name : {"a.gguf", "a-00001-of-00001.gguf", "a-00002-of-00003.gguf"}) {
    WriteFileOrDie(directory.File(name), b.Build());
    EXPECT_TRUE(OpenGguf(directory.File(name)).ok()) << name;
  }
}

TEST_F(SplitGguf, HasTheFirstPartsMetadataAndAllTensors) {
  Write();
  for (const std::string& path : {File(1), directory_.path()}) {
    const auto found = FindGguf(path);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(*found, File(1));
    const auto gguf = OpenGguf(**found);
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ(**gguf->index.metadata.String("general.name"), "split");
    EXPECT_EQ(gguf->index.tensors.size(), 3u);
    ASSERT_EQ(gguf->other_files.size(), 2u);
    EXPECT_EQ(gguf->other_files[1]->name(), Name(3));
    EXPECT_EQ(gguf->part_of.at("t2"), 1u);
    EXPECT_TRUE(gguf->other_files[1]->Holds({gguf->index.tensors.at("t2").data, 60}));
  }
}

TEST_F(SplitGguf, ADirectoryHoldsOneModel) {
  Write();
  WriteFileOrDie(directory_.File("n-00001-of-00003.gguf"), "x");
  EXPECT_THAT(std::string(FindGguf(directory_.path()).status().message()),
              HasSubstr("holds m-00001-of-00003.gguf and m-00002-of-00003.gguf, expected one"));
  std::filesystem::remove(directory_.File("n-00001-of-00003.gguf"));
  WriteFileOrDie(directory_.File("m-00004-of-00003.gguf"), "x");
  EXPECT_EQ(FindGguf(directory_.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SplitGguf, AMissingPartIsNamed) {
  Write();
  std::filesystem::remove(File(3));
  const std::string error = ErrorOf(File(1), absl::StatusCode::kNotFound);
  EXPECT_THAT(error, HasSubstr("/m-00003-of-00003.gguf: "));
  EXPECT_THAT(error, HasSubstr("(part 3 of 3 of the model)"));
  std::filesystem::remove(File(1));
  const absl::Status status = FindGguf(directory_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(": holds m-00002-of-00003.gguf, expected m-00001-of-00003.gguf too, the "
                        "first part"));
}

TEST_F(SplitGguf, AnotherPartThanTheFirstNamesTheFirst) {
  Write();
  EXPECT_EQ(ErrorOf(File(2)),
            "m-00002-of-00003.gguf: part 2 of 3, expected the first, m-00001-of-00003.gguf");
}

TEST_F(SplitGguf, PartsAreWhatTheirNamesSay) {
  std::swap(parts_[1], parts_[2]);
  EXPECT_EQ(Error(), "m-00002-of-00003.gguf: split.no: 2, expected 1 in part 2 of 3");
  std::swap(parts_[0], parts_[1]);
  EXPECT_EQ(Error(), "m-00001-of-00003.gguf: split.no: 2, expected 0 in part 1 of 3");
  Write();
  std::filesystem::rename(File(2), directory_.File("other.gguf"));
  EXPECT_EQ(ErrorOf(directory_.File("other.gguf")),
            "other.gguf: split.count: 3, expected 1 in a file of this name; the first part of 3 is "
            "called NAME-00001-of-00003.gguf");
}

TEST_F(SplitGguf, CountsAgree) {
  parts_[2].Uint32("split.count", 4);
  EXPECT_EQ(Error(), "m-00003-of-00003.gguf: split.count: 4, expected 3, as in the file's name");
  parts_[2].Erase("split.count");
  EXPECT_EQ(Error(),
            "m-00003-of-00003.gguf: split.count: missing, expected 3, as in the file's name");
  parts_[0].Uint32("split.count", 2);
  EXPECT_EQ(Error(), "m-00001-of-00003.gguf: split.count: 2, expected 3, as in the file's name");
  for (const uint32_t hostile : {1025u, ~0u}) {
    parts_[0].Uint32("split.count", hostile);
    EXPECT_EQ(Error(),
              absl::StrCat("m-00001-of-00003.gguf: split.count: ", hostile, ", expected 0..1024"));
  }
}

TEST_F(SplitGguf, EveryTensorIsThereOnce) {
  parts_[2].Set("split.tensors.count", GgufType::kInt32, int32_t{4});
  EXPECT_EQ(Error(),
            "m-00003-of-00003.gguf: split.tensors.count: 4, expected 3, as in the first part");
  parts_[2].Erase("split.tensors.count");  // the first part's counts
  EXPECT_EQ(Error(absl::StatusCode::kOk), "");
  parts_[2].Zeros("more", {1});
  EXPECT_EQ(Error(),
            "m-00001-of-00003.gguf: split.tensors.count: 3, expected 4, the number of tensors in "
            "all 3 parts");
  parts_[2].tensor("more").name = "t1";
  EXPECT_EQ(Error(),
            "m-00003-of-00003.gguf: t1: a tensor of m-00002-of-00003.gguf too, expected each "
            "tensor in one part");
  parts_[0].Erase("split.tensors.count");
  EXPECT_EQ(Error(), "m-00001-of-00003.gguf: split.tensors.count: missing, expected 0..2147483647");
  parts_[0].Set("split.tensors.count", GgufType::kInt32, int32_t{-1});
  EXPECT_THAT(Error(), HasSubstr("split.tensors.count: -1, expected 0..2147483647"));
}

TEST_F(SplitGguf, BrokenPartsAreNamed) {
  parts_[1].magic = "GGML";
  EXPECT_THAT(Error(), HasSubstr("m-00002-of-00003.gguf: no GGUF file"));
  parts_[1].magic = "GGUF";
  parts_[1].tensor("t1").offset = 64;
  EXPECT_THAT(Error(), HasSubstr("m-00002-of-00003.gguf: t1: data at 64 of 60 bytes"));
}

// A whole model, a part per few tensors as gguf-split cuts it; the first has none.
TEST_F(SplitGguf, ACheckpointReadsAllPartsAndNamesTheRightOne) {
  parts_[0] = TinyGguf();
  parts_[1] = parts_[2] = GgufBuilder();
  std::vector<std::string> names = {"token_embd.weight", "output_norm.weight", "output.weight"};
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_norm", "ffn_norm", "attn_q", "attn_output", "attn_k", "attn_v",
                             "ffn_gate", "ffn_up", "ffn_down"}) {
      names.push_back(layer + name + ".weight");
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    GgufBuilder::Tensor& to = parts_[1 + i % 2].tensor(names[i]);
    to = parts_[0].tensor(names[i]);
    parts_[0].EraseTensor(names[i]);
  }
  for (int i = 0; i < 3; ++i) {
    parts_[i].Set("split.no", GgufType::kUint16, static_cast<uint16_t>(i));
    parts_[i].Set("split.count", GgufType::kUint16, uint16_t{3});
    parts_[i].Set("split.tensors.count", GgufType::kInt32, static_cast<int32_t>(names.size()));
  }
  Write();
  const auto checkpoint = OpenCheckpoint(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->files.size(), 3u);
  EXPECT_EQ((*checkpoint)->config.vocab_size, 16);
  parts_[2].tensor("output_norm.weight").type = 17;  // IQ2_XS
  parts_[2].tensor("output_norm.weight").data.clear();
  Write();
  EXPECT_THAT(std::string(OpenCheckpoint(directory_.path()).status().message()),
              HasSubstr("m-00003-of-00003.gguf: output_norm.weight: dtype IQ2_XS, expected F32"));
}

}  // namespace
}  // namespace lowkey
