// What SentencePiece's own library gives (data/make_models.py), against ours.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

namespace lowkey {
namespace {

using Ids = std::vector<int32_t>;

class ExpectedTest : public testing::TestWithParam<size_t> {
 protected:
  ExpectedTest() : expected_(nlohmann::json::parse(ReadTestData("expected.json"))[GetParam()]) {
    auto tokenizer =
        SentencePieceTokenizer::Create(ReadTestData(expected_["model"].get<std::string>()));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (tokenizer.ok()) tokenizer_ = *std::move(tokenizer);
  }

  void SetUp() override { ASSERT_NE(tokenizer_, nullptr); }

  nlohmann::json expected_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(ExpectedTest, EncodesNastyTextsAsSentencePieceDoes) {
  ASSERT_GT(expected_["encoded"].size(), 200u);
  for (const auto& entry : expected_["encoded"]) {
    const std::string text = entry["text"];
    const auto ids = tokenizer_->Encode(text, {.add_bos = false, .add_eos = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, entry["ids"].get<Ids>()) << testing::PrintToString(text);
  }
}

TEST_P(ExpectedTest, DecodesThemAsSentencePieceDoes) {
  for (const auto& entry : expected_["encoded"]) {
    const auto text = tokenizer_->Decode(entry["ids"].get<Ids>());
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, entry["decoded"].get<std::string>());
  }
}

TEST_P(ExpectedTest, DecodesRandomIdsAsSentencePieceDoes) {
  ASSERT_GT(expected_["decoded"].size(), 100u);
  for (const auto& entry : expected_["decoded"]) {
    const Ids ids = entry["ids"];
    const auto text = tokenizer_->Decode(ids);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, entry["text"].get<std::string>()) << testing::PrintToString(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpectedTest, testing::Values(0, 1), [](const auto& param_info) {
  return param_info.param == 0 ? "BpeIdentityByteFallback" : "UnigramNfkc";
});

TEST(RoundTripTest, GivesBackTheTextOfAnIdentityModelWithByteFallback) {
  const auto tokenizer = SentencePieceTokenizer::Create(ReadTestData("bpe_identity.model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto expected = nlohmann::json::parse(ReadTestData("expected.json"));
  size_t n_tried = 0;
  for (const auto& entry : expected[0]["encoded"]) {
    const std::string text = entry["text"];
    if (text.find("\u2581") != std::string::npos) continue;  // it comes back as a space
    const auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    const auto decoded = (*tokenizer)->Decode(*ids);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, text);
    ++n_tried;
  }
  EXPECT_GT(n_tried, 200u);
}

}  // namespace
}  // namespace lowkey
