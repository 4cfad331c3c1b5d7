#include "server/model_files/load_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;

class LoadTokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    gguf_ = TinyGguf();
    gguf_.String("tokenizer.ggml.model", "gpt2");
    gguf_.String("tokenizer.ggml.pre", "gpt-2");
    gguf_.Strings("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b", "ab", "<end>"});
    gguf_.Strings("tokenizer.ggml.merges", {"a b"});
    gguf_.Int32s("tokenizer.ggml.token_type", {3, 3, 1, 1, 1, 3});
    gguf_.Erase("tokenizer.ggml.scores");
    gguf_.Uint32("tokenizer.ggml.bos_token_id", 0);
    gguf_.Uint32("tokenizer.ggml.eos_token_id", 1);
    gguf_.Uint32("tokenizer.ggml.eot_token_id", 5);
    gguf_.Bool("tokenizer.ggml.add_bos_token", true);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    WriteFileOrDie(directory_.File(name), bytes);
  }

  GgufBuilder gguf_;
  TempDirectory directory_;
};

TEST_F(LoadTokenizerTest, ReadsTheVocabularyOfAGgufFile) {
  Write("m.gguf", gguf_.Build());
  for (const std::string& path : {directory_.File("m.gguf"), directory_.path()}) {
    const auto tokenizer = LoadTokenizer(OpenModelFiles(path).value());
    ASSERT_THAT(tokenizer, IsOk());
    EXPECT_EQ((*tokenizer)->vocab_size(), 6);
    EXPECT_THAT(*(*tokenizer)->Encode("ab"), ElementsAre(0, 4));
    EXPECT_THAT((*tokenizer)->eos_ids(), ElementsAre(1, 5));
  }
}

// phi-3's vocabulary: two tokens of the type "unknown" (2), of which unknown_token_id names one.
TEST_F(LoadTokenizerTest, ReadsAVocabularyWithTwoUnknownTokens) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "▁", "a", "▁a", "<|placeholder1|>"};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 2};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    types.push_back(6);
  }
  gguf_.String("tokenizer.ggml.model", "llama");
  gguf_.Strings("tokenizer.ggml.tokens", tokens);
  gguf_.Float32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1));
  gguf_.Int32s("tokenizer.ggml.token_type", types);
  gguf_.Uint32("tokenizer.ggml.unknown_token_id", 0);
  gguf_.Uint32("tokenizer.ggml.bos_token_id", 1);
  Write("m.gguf", gguf_.Build());
  const auto tokenizer = LoadTokenizer(OpenModelFiles(directory_.path()).value());
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_THAT(*(*tokenizer)->Encode("a<|placeholder1|>", {.parse_special = true}),
              ElementsAre(1, 5, 6));
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int32_t>{5, 6}), "a");
}

TEST_F(LoadTokenizerTest, NamesFileAndKeyOfABadVocabulary) {
  gguf_.Uint32("tokenizer.ggml.tokens", 7);
  Write("m.gguf", gguf_.Build());
  EXPECT_THAT(LoadTokenizer(OpenModelFiles(directory_.path()).value()),
              IsInvalid("m.gguf: tokenizer.ggml.tokens"));
  gguf_.Strings("tokenizer.ggml.tokens", {"a"});
  Write("m.gguf", gguf_.Build());
  EXPECT_THAT(LoadTokenizer(OpenModelFiles(directory_.path()).value()),
              IsInvalid("m.gguf: tokenizer.ggml.token_type: 6 items"));
  gguf_.Int32s("tokenizer.ggml.token_type", {1});
  gguf_.Erase("tokenizer.ggml.model");
  Write("m.gguf", gguf_.Build());
  EXPECT_THAT(LoadTokenizer(OpenModelFiles(directory_.path()).value()),
              FailsWith(absl::StatusCode::kUnimplemented, "tokenizer.ggml.model: \"\""));
}

TEST_F(LoadTokenizerTest, ReadsTheFilesOfAnyOtherDirectory) {
  Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                              "decoder": {"type": "Fuse"}})");
  const auto tokenizer = LoadTokenizer(OpenModelFiles(directory_.path()).value());
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_THAT(*(*tokenizer)->Encode("aa"), ElementsAre(0, 0));
  EXPECT_THAT(LoadTokenizer(OpenModelFiles(TempDirectory().path()).value()),
              FailsWith(absl::StatusCode::kNotFound, "no tokenizer.json and no tokenizer.model"));
}

}  // namespace
}  // namespace lowkey
