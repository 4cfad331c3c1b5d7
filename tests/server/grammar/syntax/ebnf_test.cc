#include "server/grammar/syntax/ebnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/grammar/testing.h"

namespace lowkey::grammar {
namespace {

using ::testing::HasSubstr;

TEST(EbnfTest, LiteralsClassesGroupsAndCounts) {
  const auto grammar = Ebnf(R"g(# a comment
root ::= "x" [0-9]{2,3} ("-" | "+")? tail*
tail ::= "\n" . # any character
       | "\u00e9\x41"
)g");
  ASSERT_NE(grammar, nullptr);
  for (const char* text : {"x12", "x123-", "x12+\nz",
                           "x12\xC3\xA9"
                           "A\n\xE2\x82\xAC"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"x1", "x1234", "x12--", "x12\n", "12"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(EbnfTest, RulesCallThemselves) {
  const auto grammar = Ebnf(R"g(
root ::= sum
sum ::= product (("+" | "-") product)*
product ::= atom ("*" atom)*
atom ::= [0-9]+ | "(" sum ")"
)g");
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(Accepts(grammar, "1+2*(3-4)*((5))"));
  EXPECT_FALSE(Accepts(grammar, "1+"));
  EXPECT_FALSE(Accepts(grammar, "(1"));
  EXPECT_FALSE(Accepts(grammar, "1)"));
}

TEST(EbnfTest, TheFirstRuleIsTheBeginningWithoutARoot) {
  const auto grammar = Ebnf("greeting ::= \"hello \" name\nname ::= \"Ann\" | \"Bob\"");
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(Accepts(grammar, "hello Bob"));
  EXPECT_FALSE(Accepts(grammar, "Bob"));
}

TEST(EbnfTest, TextsNestNoDeeperThanTheLimitAndCanAlwaysEnd) {
  const auto grammar = Ebnf("root ::= \"(\" root \")\" | \"x\"");
  ASSERT_NE(grammar, nullptr);
  const auto nested = [](int n) { return std::string(n, '(') + "x" + std::string(n, ')'); };
  EXPECT_TRUE(Accepts(grammar, nested(kMaxDepth - 1)));
  EXPECT_FALSE(Accepts(grammar, nested(kMaxDepth)));
  GrammarConstraint constraint = ConstraintOf(grammar);
  while (constraint.Advance('(').ok()) {
  }
  EXPECT_EQ(constraint.ForcedBytes(), "x" + std::string(kMaxDepth - 1, ')'));
}

TEST(EbnfTest, TailCallsDoNotNest) {
  const auto grammar = Ebnf("root ::= \"a\" root | \"b\"");
  ASSERT_NE(grammar, nullptr);
  std::string text(1000, 'a');
  text.push_back('b');
  EXPECT_TRUE(Accepts(grammar, text));
}

TEST(EbnfTest, AmbiguousReadingsAreBounded) {
  const auto grammar = Ebnf(R"g(
root ::= (a | b | c)*
a ::= "x" root "y"
b ::= "x" root "z"
c ::= "x" "x"? root "w"
)g");
  ASSERT_NE(grammar, nullptr);
  GrammarConstraint constraint = ConstraintOf(grammar);
  for (int i = 0; i < 200; ++i) {
    const auto mask = constraint.Mask();
    if (!mask.ok()) {
      EXPECT_EQ(mask.status().code(), absl::StatusCode::kResourceExhausted) << mask.status();
      return;
    }
    if (!IsIn(*mask, 'x')) break;
    const absl::Status status = constraint.Advance('x');
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      return;
    }
  }
}

TEST(EbnfErrorTest, NameTheFault) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "no rule, expected name ::="},
      {"root", "expected ::= after root"},
      {"root ::= other", "rule other is called but not defined"},
      {"root ::= \"a", "a text without its closing quote"},
      {"root ::= \"a\n\"", "a text without its closing quote"},
      {"root ::= \"\\d\"", "a class within a text"},
      {"root ::= (\"a\"", "a ( without its )"},
      {"root ::= \"a\" )", "expected the end of the rule's line"},
      {"root ::= \"a\"\nroot ::= \"b\"", "rule root comes twice"},
      {"root ::= \"a\"**", "a repetition of a repetition"},
      {"root ::= %", "expected \"text\", a class"},
      {"root ::= root \"a\" | \"b\"", "rule root: begins with itself"},
      {"root ::= a\na ::= b? root\nb ::= \"b\"", "begins with itself"},
      {"root ::= e root\ne ::= \"\"", "rule root: begins with itself"},
      {"root ::= \"a\" root", "rule root: no text satisfies it"}};
  for (const auto& [text, message] : cases) {
    Budget budget;
    const auto grammar = CompileEbnf(text, budget);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << text;
    EXPECT_THAT(std::string(grammar.status().message()), testing::StartsWith("grammar: "));
  }
}

TEST(EbnfErrorTest, HostileGrammarsEndWithinTheBudget) {
  std::string chain = "root ::= r0\n", wide = "root ::= r0", doubling = "root ::= r0\n";
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&chain, "r", i, "::=r", i + 1, " \"a\"\n");
  absl::StrAppend(&chain, "r3000 ::= \"a\"");
  for (int i = 1; i < 1500; ++i) absl::StrAppend(&wide, " | r", i);
  for (int i = 0; i < 1500; ++i) absl::StrAppend(&wide, "\nr", i, " ::= \"a\" r", i, " | \"b\"");
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&doubling, "r", i, " ::= r", i + 1, " r", i + 1, "\n");
  absl::StrAppend(&doubling, "r40 ::= \"a\"");
  for (const std::string& text : {chain, wide, doubling}) {
    Budget budget;
    const auto grammar = CompileEbnf(text, budget);
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << grammar.status();
      continue;
    }
    GrammarConstraint constraint = ConstraintOf(*grammar);
    for (int i = 0; i < 64 && constraint.Mask().ok() && constraint.Advance('a').ok(); ++i) {
    }
  }
}

}  // namespace
}  // namespace lowkey::grammar
