#include "tokenizer/load/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;

constexpr SegmentationType kBpe = SegmentationType::kBpe;

class LoadTokenizerDirectoryTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    WriteFileOrDie(directory_.File(name), text);
  }

  TempDirectory directory_;
};

TEST_F(LoadTokenizerDirectoryTest, NamesAMissingModel) {
  EXPECT_THAT(LoadTokenizerDirectory(directory_.path()),
              FailsWith(absl::StatusCode::kNotFound, "no tokenizer.json and no tokenizer.model"));
  EXPECT_THAT(LoadTokenizerDirectory("/nonexistent"),
              FailsWith(absl::StatusCode::kNotFound, "/nonexistent"));
}

TEST_F(LoadTokenizerDirectoryTest, TakesSpecialTokensFromTheFilesBesideIt) {
  Write("tokenizer.model", SerializeModel(MakeModel(kBpe, {"▁", "a", "<end>"})));
  Write("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": {"content": "<end>"}})");
  const auto tokenizer = LoadTokenizerDirectory(directory_.path());
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_FALSE((*tokenizer)->adds_bos());
  EXPECT_THAT((*tokenizer)->eos_ids(), ElementsAre(5));
  Write("generation_config.json", R"({"eos_token_id": [2, 5]})");
  EXPECT_THAT((*LoadTokenizerDirectory(directory_.path()))->eos_ids(), ElementsAre(2, 5));
  Write("config.json", R"({"bos_token_id": 6})");
  EXPECT_THAT(LoadTokenizerDirectory(directory_.path()),
              IsInvalid("config.json: bos_token_id: token id 6"));
}

TEST_F(LoadTokenizerDirectoryTest, PrefersTokenizerJsonWhereItIsComputed) {
  Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                              "decoder": {"type": "Fuse"}})");
  EXPECT_EQ((*LoadTokenizerDirectory(directory_.path()))->vocab_size(), 1);
  Write("tokenizer.model", SerializeModel(MakeModel(kBpe, {"▁", "a"})));
  EXPECT_EQ((*LoadTokenizerDirectory(directory_.path()))->vocab_size(), 1);
  Write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ((*LoadTokenizerDirectory(directory_.path()))->vocab_size(), 5);
  Write("tokenizer.json", "{");
  EXPECT_THAT(LoadTokenizerDirectory(directory_.path()), IsInvalid("tokenizer.json: not JSON"));
}

TEST_F(LoadTokenizerDirectoryTest, NamesWhatTokenizerJsonNeedsWhenThereIsNoOtherFile) {
  Write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_THAT(LoadTokenizerDirectory(directory_.path()),
              FailsWith(absl::StatusCode::kUnimplemented, "model.type: \"Unigram\""));
}

TEST(DemoModelTest, RoundTripsStoriesAndOddities) {
  const auto tokenizer = LoadTokenizerDirectory(SourcePath("models/tales"));
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_EQ((*tokenizer)->vocab_size(), 4096);
  for (const std::string& text :
       {std::string("Once upon a time there was a little girl named Lily."),
        std::string("\"Hello!\" said the fox.\n\nThen he ran away.\n"),
        std::string("  two  spaces  "), std::string("café 日本語 \U0001F642 \t\r\n"),
        std::string("<s>not a control piece</s>"), std::string("nul\0inside", 10),
        std::string("")}) {
    EXPECT_EQ(*(*tokenizer)->Decode(*(*tokenizer)->Encode(text)), text);
  }
  EXPECT_LT((*tokenizer)->Encode("Once upon a time there was a little girl.")->size(), 14u);
}

}  // namespace
}  // namespace lowkey
