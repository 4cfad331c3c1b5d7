#include "tokenizer/bpe/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Behavior = Cut::Behavior;
using Where = PrependOnce::Where;

Pattern Regex(std::string_view regex) { return *Pattern::FromRegex(regex); }

std::vector<std::string> SectionWords(std::vector<PreTokenizerStep> steps, Section section) {
  PatternBudget budget(section.text.size());
  const auto words = PreTokenizer(std::move(steps)).Run(std::move(section), budget);
  EXPECT_THAT(words, IsOk());
  std::vector<std::string> texts;
  for (const ByteRange& range : words->ranges) {
    texts.push_back(words->text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

std::vector<std::string> TextWords(std::vector<PreTokenizerStep> steps, std::string text) {
  return SectionWords(std::move(steps),
                      {.text = std::move(text), .literal = {}, .begins_text = true});
}

std::vector<std::string> CutAtDashes(Behavior behavior, bool inverts = false) {
  return TextWords({Cut{Regex("-"), behavior, inverts}}, "-a--b-");
}

// The words that Hugging Face's Split makes of "-a--b-".
TEST(PreTokenizerTest, CutsByEveryBehavior) {
  EXPECT_THAT(CutAtDashes(Behavior::kIsolated), ElementsAre("-", "a", "-", "-", "b", "-"));
  EXPECT_THAT(CutAtDashes(Behavior::kRemoved), ElementsAre("a", "b"));
  EXPECT_THAT(CutAtDashes(Behavior::kMergedWithPrevious), ElementsAre("-", "a-", "-", "b-"));
  EXPECT_THAT(CutAtDashes(Behavior::kMergedWithNext), ElementsAre("-a", "-", "-b", "-"));
  EXPECT_THAT(CutAtDashes(Behavior::kContiguous), ElementsAre("-", "a", "--", "b", "-"));
}

TEST(PreTokenizerTest, CutsAtWhatDoesNotMatchWhenInverted) {
  EXPECT_THAT(CutAtDashes(Behavior::kRemoved, true), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(CutAtDashes(Behavior::kIsolated, true), ElementsAre("-", "a", "-", "-", "b", "-"));
}

TEST(PreTokenizerTest, EachStepCutsTheWordsOfTheLast) {
  EXPECT_THAT(TextWords({Cut{Regex("[0-9]")}, Cut{Regex(" ?[a-z]+")}}, "ab 12cd ef"),
              ElementsAre("ab", " ", "1", "2", "cd", " ef"));
}

TEST(PreTokenizerTest, PrependsToWordsWithoutIt) {
  const Cut cut = {Regex(" "), Behavior::kMergedWithNext};
  EXPECT_THAT(TextWords({cut, PrependOnce{" ", Where::kEachWord}}, "a b"), ElementsAre(" a", " b"));
  EXPECT_THAT(TextWords({Cut{Regex("-")}, PrependOnce{"_", Where::kTextsBeginning}}, "a-b"),
              ElementsAre("_a", "-", "b"));
  EXPECT_THAT(
      SectionWords({PrependOnce{"_", Where::kTextsBeginning}}, {.text = "a", .literal = {}}),
      ElementsAre("a"));
  EXPECT_THAT(
      TextWords({Cut{Regex("-"), Behavior::kRemoved}, PrependOnce{"_", Where::kTextsBeginning}},
                "-b"),
      ElementsAre("b"));
}

TEST(PreTokenizerTest, ReplacesAndSpellsWithinWords) {
  const Replace replace = {*Pattern::FromString(" "), "▁"};
  const Replace drop = {*Pattern::FromString("x"), ""};
  EXPECT_THAT(TextWords({Cut{Regex("x")}, replace, drop}, "a xb "), ElementsAre("a▁", "b▁"));
  EXPECT_THAT(TextWords({Spell{}}, "a é"), ElementsAre("aĠÃ©"));
  EXPECT_THAT(TextWords({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(TextWords({Spell{}}, ""), IsEmpty());
}

TEST(PreTokenizerTest, LimitsWhatTextBecomes) {
  const std::string text(1 << 20, ' ');
  PatternBudget budget(text.size());
  const PreTokenizer words({Replace{*Pattern::FromString(" "), std::string(8, 'x')},
                            Replace{*Pattern::FromString("x"), "yyy"}});
  EXPECT_THAT(words.Run({.text = text, .literal = {}}, budget), IsInvalid("over 16777216 bytes"));
  const PreTokenizer prepending({Cut{Regex(" ")}, PrependOnce{std::string(20, 'x'), {}}});
  PatternBudget fresh(text.size());
  EXPECT_THAT(prepending.Run({.text = text, .literal = {}}, fresh),
              IsInvalid("over 16777216 bytes once it is cut into words"));
}

}  // namespace
}  // namespace lowkey
