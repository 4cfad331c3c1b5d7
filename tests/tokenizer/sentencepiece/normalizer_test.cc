#include "tokenizer/sentencepiece/normalizer.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

const PieceTrie& NoPieces() {
  static const PieceTrie trie({});
  return trie;
}

std::optional<Charsmap> Rules(const std::map<std::string, std::string>& rules) {
  return *Charsmap::Create(MakeCharsmap(rules));
}

std::string Plain(std::string_view text, Normalizer::Options options) {
  return *Normalizer(options, std::nullopt, NoPieces()).Normalize(text);
}

TEST(NormalizerTest, WritesSpacesAsTheirSymbol) {
  EXPECT_EQ(Plain(" a  b ", {false, false}), "▁a▁▁b▁");
}

TEST(NormalizerTest, AddsTheDummyPrefixToAnyTextButNone) {
  EXPECT_EQ(Plain("a", {true, false}), "▁a");
  EXPECT_EQ(Plain(" a", {true, false}), "▁▁a");
  EXPECT_EQ(Plain("", {true, false}), "");
}

TEST(NormalizerTest, RemovesExtraSpacesAndNoOtherWhitespace) {
  EXPECT_EQ(Plain("  a   b\n ", {true, true}), "▁a▁b\n");
  EXPECT_EQ(Plain("   ", {true, true}), "");
  EXPECT_EQ(Plain("\n \n", {false, true}), "\n▁\n");
}

TEST(NormalizerTest, AppliesRulesLongestFirst) {
  const Normalizer normalizer({false, false}, Rules({{"ﬁ", "fi"}, {"a", "b"}, {"aa", ""}}),
                              NoPieces());
  EXPECT_EQ(*normalizer.Normalize("ﬁaaa"), "fib");
}

TEST(NormalizerTest, CountsSpacesThatRulesMake) {
  const auto rules = Rules({{"\n", " "}, {"x", " y "}, {"0", ""}});
  const Normalizer normalizer({true, true}, rules, NoPieces());
  EXPECT_EQ(*normalizer.Normalize("\n \na\n\nb\n"), "▁a▁b");
  EXPECT_EQ(*normalizer.Normalize("a x x"), "▁a▁y▁y");
  EXPECT_EQ(*normalizer.Normalize("a 0 b"), "▁a▁b");
}

TEST(NormalizerTest, NothingLeftMeansNoDummyPrefix) {
  const Normalizer normalizer({true, true}, Rules({{"0", ""}}), NoPieces());
  EXPECT_EQ(*normalizer.Normalize("000"), "");
}

TEST(NormalizerTest, LeavesVerbatimPiecesAlone) {
  const PieceTrie verbatim({{"ﬁ!", 0}});
  const Normalizer normalizer({false, false}, Rules({{"ﬁ", "fi"}}), verbatim);
  EXPECT_EQ(*normalizer.Normalize("ﬁ ﬁ!"), "fi▁ﬁ!");
}

TEST(NormalizerTest, BoundsWhatRulesCanMakeOfAText) {
  const Normalizer normalizer({false, false}, Rules({{"a", std::string(256, 'r')}}), NoPieces());
  EXPECT_THAT(normalizer.Normalize(std::string(1 << 15, 'a')), IsOk());
  EXPECT_THAT(normalizer.Normalize(std::string(1 << 17, 'a')), IsInvalid("once normalized"));
}

}  // namespace
}  // namespace lowkey
