#include "server/grammar/syntax/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/grammar/testing.h"

namespace lowkey::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* regex;
  std::vector<std::string> matches, others;
};

class RegexTest : public testing::TestWithParam<Case> {};

TEST_P(RegexTest, AcceptsWhatItMatchesAndNothingElse) {
  const auto grammar = Regex(GetParam().regex);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& text : GetParam().matches) EXPECT_TRUE(Accepts(grammar, text)) << text;
  for (const std::string& text : GetParam().others) EXPECT_FALSE(Accepts(grammar, text)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, RegexTest,
    testing::Values(
        Case{"abc", {"abc"}, {"ab", "abcd", ""}}, Case{"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
        Case{"a*b+c?", {"b", "aabbc"}, {"a", "c", "bcc"}}, Case{"a{2}", {"aa"}, {"a", "aaa"}},
        Case{"a{2,}", {"aa", "aaaaa"}, {"a"}}, Case{"a{1,3}b", {"ab", "aaab"}, {"b", "aaaab"}},
        Case{"a{,3}", {"a{,3}"}, {"aaa"}}, Case{"(ab)+?", {"ab", "abab"}, {"", "aba"}},
        Case{"(?:a|(?<n>b))*", {"", "abba"}, {"c"}}, Case{"[a-cx-]+", {"abcx-"}, {"d", ""}},
        Case{"[^a-z]", {"A", "\xC3\xA9", "\n", "\xF0\x9F\x98\x80"}, {"a", "\xC3", "AB"}},
        Case{"[\\d\\-\\]]+", {"0-]"}, {"a"}},
        Case{"[^\\s@]+", {"ab"}, {"a b", "a@", "a\xE3\x80\x80", "\xC2\xA0", "\xEF\xBB\xBF"}},
        Case{"[^\\S]", {" "}, {"a", "\xC2\xA0"}},
        Case{".", {"a", "\xE2\x82\xAC"}, {"\n", "\r", "\xE2\x82", "\xED\xA0\x80", "\xC0\x80"}},
        Case{"\\d\\w\\s\\D\\W\\S", {"0a a!b"}, {"aa a!b"}},
        Case{"\\x41\\u00e9\\u{1F600}", {"A\xC3\xA9\xF0\x9F\x98\x80"}, {"A"}},
        Case{"^a$|^b$", {"a", "b"}, {"ab"}}, Case{"\\.\\*\\/", {".*/"}, {"a"}},
        Case{"[\xC3\xA0-\xC3\xBF]", {"\xC3\xA9"}, {"\xC3\x9F", "e"}},
        Case{"(a*)*(b|)*", {"", "aab"}, {"ba"}}));

TEST(RegexErrorTest, NameTheByteAndTheFault) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"(a", "byte 2: a ( without its )"},
      {"a)", "byte 1: a ) without its ("},
      {"[a", "a class without end"},
      {"[b-a]", "a range that ends before it begins"},
      {"[]", "a class without any character"},
      {"[[:alpha:]]", "a named class in brackets is not supported"},
      {"*", "byte 0: a repetition of nothing"},
      {"a**", "a repetition of nothing"},
      {"a++", "possessive"},
      {"a{3,2}", "expected the least first"},
      {"a{20000}", "expected at most 10000"},
      {"(?=a)", "looking ahead is not supported"},
      {"(?<!a)", "looking behind is not supported"},
      {"(?i)a", "this kind of group is not supported"},
      {"\\1", "escape \\1 is not supported"},
      {"\\bword", "escape \\b is not supported"},
      {"\\p{L}", "escape \\p is not supported"},
      {"a$b", "a $ that is not at the end"},
      {"a^b", "^ is not supported there"},
      {"(a$)", "$ is not supported there"},
      {"\\", "a backslash at the end"},
      {"\\uD800", "no surrogate"},
      {"\xFF", "not UTF-8"}};
  for (const auto& [regex, message] : cases) {
    Budget budget;
    const auto grammar = CompileRegex(regex, budget);
    ASSERT_FALSE(grammar.ok()) << regex;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << regex;
    EXPECT_THAT(std::string(grammar.status().message()), testing::StartsWith("regex: "));
  }
}

TEST(RegexErrorTest, HostileExpressionsEndWithinTheBudget) {
  std::string deep;
  for (int i = 0; i < 20'000; ++i) deep += '(';
  const std::vector<std::string> hostile = {deep,
                                            "(a{100}){100}{100}",
                                            "((a{1000}){1000}){1000}",
                                            "(.*a){1,40}",
                                            "(a|b)*a(a|b){20}",
                                            "(a?){5000}a{5000}",
                                            "([^x]{1,900}|[^y]{1,900}){1,10}"};
  for (const std::string& regex : hostile) {
    Budget budget;
    const auto grammar = CompileRegex(regex, budget);
    if (grammar.ok()) {
      EXPECT_LE((*grammar)->n_states(), kMaxStates);
    } else {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(RegexErrorTest, AnInterruptEndsTheWork) {
  Interrupt interrupt([] { return absl::DeadlineExceededError("late"); });
  Budget budget(&interrupt);
  EXPECT_EQ(CompileRegex("(a|b)*a(a|b){12}", budget).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace lowkey::grammar
