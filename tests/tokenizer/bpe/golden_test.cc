// What Hugging Face's tokenizers give (data/make_goldens.py), against ours.
#include "tests/tokenizer/bpe/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

using Ids = std::vector<int32_t>;

std::string StreamDecode(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = *stream.Append(id);
    EXPECT_EQ(FindInvalidUtf8(part), std::nullopt);
    text += part;
  }
  return text + stream.Finish();
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = MakeFromJson(ReadBpeTestData(std::string(GetParam()) + ".json"));
    ASSERT_THAT(tokenizer, IsOk());
    tokenizer_ = *std::move(tokenizer);
    expected_ = nlohmann::json::parse(ReadBpeTestData(std::string(GetParam()) + ".expected.json"));
    ASSERT_GT(expected_["encoded"].size(), 200u);
    ASSERT_GT(expected_["decoded"].size(), 100u);
  }

  Ids Encode(const std::string& text, const EncodeOptions& options) const {
    const auto ids = tokenizer_->Encode(text, options);
    EXPECT_THAT(ids, IsOk());
    return ids.value_or(Ids{});
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json expected_;
};

TEST_P(GoldenTest, EncodesNastyTextsAsHuggingFaceDoes) {
  for (const auto& entry : expected_["encoded"]) {
    const std::string text = entry["text"];
    EXPECT_EQ(Encode(text, {.add_bos = false}), entry["ids"].get<Ids>())
        << testing::PrintToString(text);
    const bool has_specials = entry.contains("special_ids");
    EXPECT_EQ(Encode(text, {.add_bos = false, .parse_special = true}),
              entry[has_specials ? "special_ids" : "ids"].get<Ids>())
        << testing::PrintToString(text);
  }
}

TEST_P(GoldenTest, ATextThatAUserWroteHasNoSpecials) {
  for (const auto& entry : expected_["encoded"]) {
    const std::string text = entry["text"];
    const std::vector<ByteRange> whole = {{0, text.size()}};
    EXPECT_EQ(Encode(text, {.add_bos = false, .parse_special = true, .literal_ranges = whole}),
              entry["ids"].get<Ids>())
        << testing::PrintToString(text);
  }
}

TEST_P(GoldenTest, DecodesThemAsHuggingFaceDoes) {
  for (const auto& entry : expected_["encoded"]) {
    const Ids ids = entry["ids"];
    EXPECT_EQ(*tokenizer_->Decode(ids), entry["decoded"].get<std::string>())
        << testing::PrintToString(entry["text"].get<std::string>());
    EXPECT_EQ(StreamDecode(*tokenizer_, ids), entry["decoded"].get<std::string>());
  }
}

TEST_P(GoldenTest, DecodesRandomIdsAsHuggingFaceDoes) {
  for (const auto& entry : expected_["decoded"]) {
    const Ids ids = entry["ids"];
    EXPECT_EQ(*tokenizer_->Decode(ids), entry["text"].get<std::string>())
        << testing::PrintToString(ids);
    EXPECT_EQ(StreamDecode(*tokenizer_, ids), entry["text"].get<std::string>());
  }
}

TEST_P(GoldenTest, PutsBosWhereThePostProcessorDoes) {
  EXPECT_EQ(Encode("a b", {}), expected_["with_bos"].get<Ids>());
}

TEST_P(GoldenTest, EncodesAMebibyteOfOneLetter) {
  const std::string text(1 << 20, 'a');
  const auto decoded = tokenizer_->Decode(Encode(text, {.add_bos = false}));
  ASSERT_THAT(decoded, IsOk());
  // Some put a space before.
  EXPECT_EQ(decoded->substr(decoded->size() - text.size()), text);
}

INSTANTIATE_TEST_SUITE_P(Styles, GoldenTest,
                         testing::Values("gpt2", "gpt2_prefix", "smollm", "llama3", "qwen2",
                                         "llama2", "mistral", "metaspace"),
                         [](const auto& param_info) { return std::string(param_info.param); });

}  // namespace
}  // namespace lowkey
