#include "tools/eval/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/sampler/logits.h"
#include "tests/tools/eval/tales.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"({"prompt": "a", "choices": ["b", "c"], "answer": 1, "id": 7})";

TEST(ParseQuestionsTest, ReadsALineEach) {
  const auto questions = ParseQuestions(absl::StrCat("\n", kGood, "\r\n  \n", kGood), "file");
  ASSERT_TRUE(questions.ok()) << questions.status();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ(questions->at(1).prompt, "a");
  EXPECT_THAT(questions->at(1).choices, ::testing::ElementsAre("b", "c"));
  EXPECT_EQ(questions->at(1).answer, 1);
}

TEST(ParseQuestionsTest, SaysWhatIsWrongAndWhere) {
  const auto message = [](const std::string& line) {
    return std::string(ParseQuestions(absl::StrCat(kGood, "\n", line), "file").status().message());
  };
  EXPECT_THAT(message("{"), HasSubstr("file:2"));
  EXPECT_THAT(message("[1]"), HasSubstr("file:2"));
  EXPECT_THAT(message(R"({"choices": ["b", "c"], "answer": 1})"), HasSubstr("file:2: prompt"));
  EXPECT_THAT(message(R"({"prompt": "a", "choices": ["b"], "answer": 0})"),
              HasSubstr("file:2: choices: expected an array of 2..64 texts"));
  EXPECT_THAT(message(R"({"prompt": "a", "choices": ["b", 3], "answer": 0})"),
              HasSubstr("file:2: choices: 3, expected a text"));
  EXPECT_THAT(message(R"({"prompt": "a", "choices": ["b", ""], "answer": 0})"),
              HasSubstr("choices: \"\""));
  EXPECT_THAT(message(R"({"prompt": "a", "choices": ["b", "c"], "answer": 2})"),
              HasSubstr("file:2: answer: 2, expected 0..1"));
  EXPECT_THAT(message(R"({"prompt": "a", "choices": ["b", "c"]})"), HasSubstr("answer"));
  EXPECT_THAT(std::string(ParseQuestions("\n", "file").status().message()),
              HasSubstr("file: no question"));
}

class ChoiceTest : public ::testing::Test {
 protected:
  // The sum over a choice's tokens from the logits.
  double Sum(const std::string& prompt, const std::string& choice) const {
    EncodeOptions encode;
    encode.add_bos = false;
    encode.add_eos = false;
    const auto before = tales_.tokenizer->Encode(prompt, encode).value();
    auto tokens = tales_.tokenizer->Encode(prompt + choice, encode).value();
    size_t same = 0;
    while (same < before.size() && before[same] == tokens[same]) ++same;
    tokens.insert(tokens.begin(), tales_.tokenizer->bos_id().value());
    const auto logits = tales_.Logits(tokens);
    const size_t vocab = static_cast<size_t>(tales_.engine->config().vocab_size);
    double sum = 0;
    for (size_t i = same + 1; i < tokens.size(); ++i) {
      sum += LogSoftmaxAt(absl::MakeConstSpan(logits).subspan((i - 1) * vocab, vocab), tokens[i]);
    }
    return sum;
  }

  absl::StatusOr<ChoiceResult> Measure(const std::vector<Question>& questions) const {
    return MeasureChoices(*tales_.engine, *tales_.tokenizer, questions, tales_.tokenizer->bos_id(),
                          {}, [](int64_t, int64_t) {});
  }

  Tales tales_;
};

TEST_F(ChoiceTest, TakesTheMostProbableContinuation) {
  const std::string prompt = "Once upon a time there was a";
  const std::vector<std::string> choices = {" king", " king who had three daughters", " zinc"};
  std::vector<double> sums, means;
  for (const std::string& choice : choices) {
    sums.push_back(Sum(prompt, choice));
    means.push_back(sums.back() / static_cast<double>(choice.size()));
  }
  const int64_t most = std::max_element(sums.begin(), sums.end()) - sums.begin();
  const int64_t most_by_byte = std::max_element(means.begin(), means.end()) - means.begin();
  EXPECT_NE(most, most_by_byte);  // so that each count has its own answer
  for (int64_t answer = 0; answer < 3; ++answer) {
    const auto result = Measure({{prompt, choices, answer}, {prompt, choices, answer}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->n_questions, 2);
    EXPECT_EQ(result->n_right, answer == most ? 2 : 0);
    EXPECT_EQ(result->n_right_normalized, answer == most_by_byte ? 2 : 0);
  }
}

TEST_F(ChoiceTest, ReadsAPromptOnce) {
  constexpr int kWords = 200;  // of a token or more each
  std::string prompt = "a";
  for (int i = 0; i < kWords; ++i) prompt += " king";
  const auto result = Measure({{prompt, {" b", " c", " d", " e"}, 0}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->cost.n_tokens, kWords);
  EXPECT_LT(result->cost.n_tokens, 2 * kWords);
}

TEST_F(ChoiceTest, NamesTheQuestionThatDoesNotFit) {
  std::string text = "a";
  for (int i = 0; i < 5000; ++i) text += " king";
  const auto result = Measure({{"a", {" b", " c"}, 0}, {text, {" b", " c"}, 0}});
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("question 2: "));
}

}  // namespace
}  // namespace lowkey
