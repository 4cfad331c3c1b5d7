#include "tools/eval/recall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/sampler/logits.h"
#include "tests/tools/eval/tales.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class RecallTest : public ::testing::Test {
 protected:
  RecallTest() {
    options_.context_tokens = 480;
    options_.n_codes = 3;
    options_.passage_tokens = 50;
    options_.first_token = 1;
    for (int i = 0; i < 1000; ++i) filler_.push_back(300 + i % 701);
  }

  RecallText Text(int64_t index) const {
    return MakeRecallText(*tales_.tokenizer, filler_, options_, index).value();
  }
  std::string Decoded(absl::Span<const int32_t> tokens) const {
    return tales_.tokenizer->Decode(tokens).value();
  }
  std::string Refusal() const {
    return std::string(MakeRecallText(*tales_.tokenizer, filler_, options_, 0).status().message());
  }

  Tales tales_;
  RecallOptions options_;
  std::vector<int32_t> filler_;
};

TEST_F(RecallTest, AsksForCodesThatStandAboveOnce) {
  const RecallText text = Text(0);
  EXPECT_EQ(text.tokens.size(), 480u);
  EXPECT_EQ(text.tokens[0], 1);
  ASSERT_EQ(text.codes.size(), 3u);
  const std::string all = Decoded(text.tokens);
  for (const std::vector<int64_t>& places : text.codes) {
    std::vector<int32_t> tokens;
    for (const int64_t place : places) tokens.push_back(text.tokens[place]);
    const std::string code = Decoded(tokens);
    EXPECT_THAT(code, ::testing::ContainsRegex("^ ?[0-9]+$"));
    const size_t told = all.find(code), asked = all.find(code, told + 1);
    ASSERT_NE(asked, std::string::npos);
    EXPECT_LT(told, all.size() * 3 / 4);
    EXPECT_EQ(all.find(code, asked + 1), std::string::npos);
    EXPECT_THAT(all.substr(asked - 30, 30), HasSubstr("The code of the"));
  }
}

TEST_F(RecallTest, AsksForItsFirstPassageLast) {
  const RecallText text = Text(0);
  const auto passage = absl::MakeConstSpan(text.tokens).last(50);
  EXPECT_TRUE(std::equal(passage.begin(), passage.end(), text.tokens.begin() + 1));
  ASSERT_EQ(text.copied.size(), 50u - RecallOptions::kCueTokens);
  EXPECT_EQ(text.copied.back(), 479);
  EXPECT_EQ(text.copied.front(), 480 - 50 + RecallOptions::kCueTokens);
}

TEST_F(RecallTest, TheNumberOfATextDecidesIt) {
  EXPECT_EQ(Text(1).tokens, Text(1).tokens);
  const RecallText first = Text(0), second = Text(1);
  EXPECT_EQ(second.tokens[1], filler_[480]);
  const auto asked = [](const RecallText& text) {
    return std::vector<int32_t>(text.tokens.begin() + text.codes[0][0], text.tokens.end() - 60);
  };
  EXPECT_NE(asked(first), asked(second));
}

TEST_F(RecallTest, SaysWhatIsTooShort) {
  options_.context_tokens = 240;
  EXPECT_THAT(Refusal(), HasSubstr("context: 240 tokens, expected at least"));
  options_.context_tokens = 2000;
  EXPECT_THAT(Refusal(), HasSubstr("text: 1000 tokens, expected at least"));
  options_.passage_tokens = RecallOptions::kCueTokens;
  EXPECT_THAT(Refusal(), HasSubstr("passage: 32, expected 33.."));
  options_.n_codes = 33;
  EXPECT_THAT(Refusal(), HasSubstr("codes: 33, expected 1..32"));
}

TEST_F(RecallTest, CountsWhatTheLogitsPredict) {
  RecallResult expected;
  const size_t vocab = static_cast<size_t>(tales_.engine->config().vocab_size);
  for (int64_t index = 0; index < 2; ++index) {
    const RecallText text = Text(index);
    const std::vector<float> logits = tales_.Logits(text.tokens);
    const auto before = [&](int64_t place) {
      return absl::MakeConstSpan(logits).subspan((place - 1) * vocab, vocab);
    };
    const auto is_right = [&](int64_t place) {
      const auto row = before(place);
      return std::max_element(row.begin(), row.end()) - row.begin() == text.tokens[place] ? 1 : 0;
    };
    for (const std::vector<int64_t>& code : text.codes) {
      int64_t n_right = 0;
      for (const int64_t place : code) {
        n_right += is_right(place);
        expected.code_negative_logprob -= LogSoftmaxAt(before(place), text.tokens[place]);
      }
      expected.n_code_tokens += static_cast<int64_t>(code.size());
      expected.n_code_tokens_right += n_right;
      expected.n_codes_right += n_right == static_cast<int64_t>(code.size()) ? 1 : 0;
    }
    for (const int64_t place : text.copied) expected.n_copied_right += is_right(place);
  }
  const auto result =
      MeasureRecall(*tales_.engine, *tales_.tokenizer, filler_, options_, [](int64_t, int64_t) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_texts, 2);
  EXPECT_EQ(result->n_codes, 6);
  EXPECT_EQ(result->n_codes_right, expected.n_codes_right);
  EXPECT_EQ(result->n_code_tokens, expected.n_code_tokens);
  EXPECT_EQ(result->n_code_tokens_right, expected.n_code_tokens_right);
  EXPECT_NEAR(result->code_negative_logprob, expected.code_negative_logprob, 1e-2);
  EXPECT_EQ(result->n_copied, 2 * (50 - RecallOptions::kCueTokens));
  EXPECT_EQ(result->n_copied_right, expected.n_copied_right);
  EXPECT_EQ(result->cost.n_tokens, 960);
}

}  // namespace
}  // namespace lowkey
