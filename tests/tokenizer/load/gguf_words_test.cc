#include "tokenizer/load/gguf_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/bpe/pre_tokenizer.h"

namespace lowkey {
namespace {

using testing::ElementsAre;

std::vector<std::string> Words(std::string_view pre, std::string text) {
  const auto words = FindGgufWords(pre);
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view regex : words->regexes) {
    const auto pattern = Pattern::FromRegex(regex);
    EXPECT_THAT(pattern, IsOk()) << pre;
    steps.push_back(Cut{*pattern});
  }
  PatternBudget budget(text.size());
  const auto cut =
      PreTokenizer(std::move(steps)).Run({.text = std::move(text), .literal = {}}, budget);
  EXPECT_THAT(cut, IsOk());
  std::vector<std::string> texts;
  for (const ByteRange& range : cut->ranges) {
    texts.push_back(cut->text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

TEST(FindGgufWordsTest, CutsAsTheNamedModelsDo) {
  const std::string text = "We'LL do1234 iOS//\n";
  EXPECT_THAT(Words("gpt-2", text),
              ElementsAre("We", "'", "LL", " do", "1234", " iOS", "//", "\n"));
  EXPECT_THAT(Words("smollm", text),
              ElementsAre("We", "'", "LL", " do", "1", "2", "3", "4", " iOS", "//", "\n"));
  EXPECT_THAT(Words("llama-bpe", text),
              ElementsAre("We", "'LL", " do", "123", "4", " iOS", "//\n"));
  EXPECT_THAT(Words("qwen2", text),
              ElementsAre("We", "'LL", " do", "1", "2", "3", "4", " iOS", "//\n"));
  EXPECT_THAT(Words("gpt-4o", text), ElementsAre("We'LL", " do", "123", "4", " i", "OS", "//\n"));
  EXPECT_THAT(Words("tekken", text),
              ElementsAre("We", "'LL", " do", "1", "2", "3", "4", " i", "OS", "//\n"));
  EXPECT_THAT(Words("default", text),
              ElementsAre("We", "'", "LL", " do", "123", "4", " iOS", "//", "\n"));
}

TEST(FindGgufWordsTest, KnowsAliasesAndNoOthers) {
  EXPECT_TRUE(FindGgufWords("llama3")->ignores_merges);
  EXPECT_TRUE(FindGgufWords("stablelm2").has_value());
  EXPECT_FALSE(FindGgufWords("").has_value());
  EXPECT_FALSE(FindGgufWords("GPT-2").has_value());
}

}  // namespace
}  // namespace lowkey
