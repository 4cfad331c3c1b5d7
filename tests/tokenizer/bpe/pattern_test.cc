#include "tokenizer/bpe/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/bpe/pre_tokenizer.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Matches(const absl::StatusOr<Pattern>& pattern, std::string_view text) {
  EXPECT_THAT(pattern, IsOk());
  std::vector<std::string> matches;
  PatternBudget budget(text.size());
  PatternSearch search(*pattern, budget);
  EXPECT_THAT(search.ForEachMatch(text,
                                  [&](size_t begin, size_t end) {
                                    matches.emplace_back(text.substr(begin, end - begin));
                                  }),
              IsOk());
  return matches;
}

std::vector<std::string> RegexMatches(std::string_view regex, std::string_view text) {
  return Matches(Pattern::FromRegex(regex), text);
}

TEST(PatternTest, FindsAString) {
  EXPECT_THAT(Matches(Pattern::FromString("aa"), "aaaba a"), ElementsAre("aa"));
  EXPECT_THAT(Matches(Pattern::FromString("."), "a.b"), ElementsAre("."));
  EXPECT_THAT(Matches(Pattern::FromString("x"), ""), IsEmpty());
}

TEST(PatternTest, CutsWordsAsGpt2Does) {
  EXPECT_THAT(RegexMatches(kGpt2Regex, "It's 12 o'clock!  Héllo\n\n x"),
              ElementsAre("It", "'s", " 12", " o", "'", "clock", "!", " ", " Héllo", "\n\n", " x"));
}

TEST(PatternTest, SpaceIsUnicodesWhiteSpace) {
  EXPECT_THAT(RegexMatches("\\s", "a\u0085\u00A0\u3000\u180E\u200B\v"),
              ElementsAre("\u0085", "\u00A0", "\u3000", "\v"));
  EXPECT_THAT(RegexMatches("[\\S]", " \u180E"), ElementsAre("\u180E"));
}

TEST(PatternTest, FoldsCaseWhereAsked) {
  EXPECT_THAT(RegexMatches("(?i:'s)|s", "'S's'\u017F S"), ElementsAre("'S", "'s", "'\u017F"));
}

TEST(PatternTest, RefusesWhatIsNoRegexOrMatchesNothing) {
  EXPECT_THAT(Pattern::FromRegex("(a"), IsInvalid("\"(a\": missing closing parenthesis"));
  EXPECT_THAT(Pattern::FromRegex("[a"), IsInvalid("missing terminating ]"));
  EXPECT_THAT(Pattern::FromRegex("(?:(?:a{1000}){1000}){1000}"), IsInvalid("too large"));
  EXPECT_THAT(Pattern::FromRegex(std::string(300, '(') + "a" + std::string(300, ')')),
              IsInvalid("nested"));
  EXPECT_THAT(Pattern::FromRegex("a*"),
              FailsWith(absl::StatusCode::kUnimplemented, "can match nothing"));
  EXPECT_THAT(Pattern::FromRegex("\xFF"), IsInvalid("not UTF-8"));
  EXPECT_THAT(Pattern::FromRegex(std::string(Pattern::kMaxBytes + 1, 'a')),
              IsInvalid("16385 bytes, expected at most 16384"));
  EXPECT_THAT(Pattern::FromString(""), IsInvalid("empty"));
  EXPECT_THAT(Pattern::FromString(std::string(Pattern::kMaxStringBytes + 1, 'a')),
              IsInvalid("257 bytes, expected at most 256"));
}

// Exponential, of a high power, and quadratic over all matches.
TEST(PatternTest, StopsPatternsThatBacktrackTooMuch) {
  for (const char* const regex :
       {"(?:a+)+[bc]", "(?:a|a)+[bc]", "a+a+a+a+[bc]", "a+[bc]", "(?:a|a)(?:a|a)+[bc]",
        "(?:a?a?a?a?)+[bc]", "(?=a+[bc])a", "a+?[bc]", "a{1,500}a{1,500}a{1,500}[bc]",
        "(?:a|b|ab)+[cd]", "(?:(?=a+[bc])a|a)+", "a+b|a+c|a+d|a+[ef]"}) {
    const auto pattern = Pattern::FromRegex(regex);
    ASSERT_THAT(pattern, IsOk()) << regex;
    const std::string text(1 << 20, 'a');
    PatternBudget budget(text.size());
    PatternSearch search(*pattern, budget);
    EXPECT_THAT(search.ForEachMatch(text + "\u00e9", [](size_t, size_t) {}),
                IsInvalid("too many steps on 1048578 bytes"))
        << regex;
  }
}

TEST(PatternTest, TheBudgetIsSharedByAllSearches) {
  const auto pattern = Pattern::FromRegex("a+[bc]");
  ASSERT_THAT(pattern, IsOk());
  PatternBudget budget(0);
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    PatternSearch search(*pattern, budget);
    status = search.ForEachMatch(std::string(100, 'a'), [](size_t, size_t) {});
  }
  EXPECT_THAT(status, IsInvalid("too many steps on 100 bytes"));
}

TEST(PatternTest, PatternsInUseStayWithinTheBudgetOnAMebibyte) {
  for (const std::string& unit :
       {std::string("a"), std::string(" "), std::string("\n"), std::string("'"), std::string(" \n"),
        std::string("1"), std::string("\u0301"), std::string("     x"), std::string("=\r")}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    RegexMatches(kGpt2Regex, text);
    RegexMatches(
        R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        text);
  }
}

}  // namespace
}  // namespace lowkey
