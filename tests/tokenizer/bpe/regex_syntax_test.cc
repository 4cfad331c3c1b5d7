#include "tokenizer/bpe/regex_syntax.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// The translation with callouts as "!".
std::string Translate(std::string_view regex) {
  return absl::StrReplaceAll(*TranslateRegex(regex), {{"(?C)", "!"}});
}

TEST(TranslateRegexTest, PutsCalloutsAroundRepeatsAndGroups) {
  EXPECT_EQ(Translate("ab|c"), "ab|c");
  EXPECT_EQ(Translate("a+b?c*d"), "!a+!b?!c*!d");
  EXPECT_EQ(Translate("a+?b++c{2}d{1,3}?"), "!a+?!b++!c{2}!d{1,3}?!");
  EXPECT_EQ(Translate("x(?:a|b)c(d)+"), "x!(?:a|b)!c!(d)+!");
  EXPECT_EQ(Translate("(?i:'s)(?=a)(?!b)(?<=c)(?<!d)(?>e)"),
            "!(?i:'s)!(?=a)!(?!b)!(?<=c)!(?<!d)!(?>e)!");
  EXPECT_EQ(Translate("x日+"), "x!日+!");
  EXPECT_EQ(Translate("[ab]+|a"), "![ab]+!|a");
}

TEST(TranslateRegexTest, SpellsOutWhatSpaceIs) {
  const std::string space = *TranslateRegex("\\s");
  EXPECT_EQ(space.substr(0, 8), "[\\t-\\r \\");
  EXPECT_EQ(*TranslateRegex("\\S"), "[^" + space.substr(1));
  EXPECT_EQ(*TranslateRegex("[^\\s\\p{L}]"), "[^" + space.substr(1, space.size() - 2) + "\\p{L}]");
}

TEST(TranslateRegexTest, KeepsEscapesThatMeanTheSame) {
  for (const char* const regex : {"\\.\\-\\[\\\\", "[a-z\\]^-]", "\\d\\D\\r\\n\\t\\f",
                                  "\\p{Lu}\\P{N}", "^a$", "[$+<=>^~|]", "\\x{4e00}", "."}) {
    EXPECT_EQ(*TranslateRegex(regex), regex);
  }
  EXPECT_EQ(*TranslateRegex("\\x41\\u4e00"), "\\x{41}\\x{4e00}");
}

TEST(TranslateRegexTest, NamesWhatMayMeanSomethingElse) {
  for (const char* const regex : {"\\w",         "\\b",       "\\h",
                                  "\\v",         "\\R",       "\\X",
                                  "\\A",         "\\1",       "\\",
                                  "(?m:a)",      "(?i)a",     "(?<n>a)",
                                  "(?R)",        "(?C)",      "(*ACCEPT)",
                                  "[[:alpha:]]", "[a&&b]",    "[]a]",
                                  "a{,2}",       "a{x}",      "{2}",
                                  "*a",          "a**",       "a{2}+",
                                  "a{1001}",     "a{1,2000}", "a{99999999999}",
                                  "\\p{Han}",    "\\p{^L}",   "\\pL",
                                  "\\p{",        "\\x{",      "\\xff",
                                  "\\u12",       "|+"}) {
    EXPECT_THAT(TranslateRegex(regex), FailsWith(kUnimplemented, "is not supported")) << regex;
  }
  EXPECT_THAT(TranslateRegex("ab\\w"), FailsWith(kUnimplemented, "\"\\\\w\" at byte 2"));
}

}  // namespace
}  // namespace lowkey
