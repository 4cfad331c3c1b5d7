#include "server/config/opened_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/common_flags.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

absl::Status Open(const std::string& path) {
  CommandSpec spec;
  spec.name = "try";
  spec.groups = {{"Model", ModelFlags()}};
  FlagSources none;
  none.environment = [](const std::string&) { return std::nullopt; };
  const auto flags = ParseFlags(spec, {"--model", path}, {}, none);
  return flags.ok() ? OpenedModel::Open(*flags).status() : flags.status();
}

TEST(OpenedModelTest, DirectoryWithoutAModelSaysWhatItLacks) {
  const TempDirectory directory;
  EXPECT_EQ(Open(directory.path()),
            absl::NotFoundError(absl::StrCat(
                "--model: ", directory.path(),
                ": no config.json and no .gguf file in it, expected a directory with config.json "
                "and *.safetensors, or a .gguf file")));
  WriteFileOrDie(directory.File("config.json"), "{}");
  EXPECT_EQ(Open(directory.path()), absl::OkStatus());
}

TEST(OpenedModelTest, DirectoryWithATokenizerAloneCanBeOpened) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("tokenizer.json"), "{}");
  EXPECT_EQ(Open(directory.path()), absl::OkStatus());
}

TEST(OpenedModelTest, OtherFilesAreNoModel) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("model.bin"), "");
  const absl::Status status = Open(directory.File("model.bin"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              ::testing::EndsWith("expected a model directory or a .gguf file"));
}

}  // namespace
}  // namespace lowkey
