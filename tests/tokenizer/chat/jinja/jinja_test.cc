// The errors of lexer and parser, and the interpreter's bounds. What templates write is in goldens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/chat/render.h"
#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/chat/jinja/lexer.h"

namespace lowkey::jinja {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

std::string Repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST(LexerTest, NamesTheLineOfWhatDoesNotEnd) {
  EXPECT_THAT(Tokenize("a\n{{ b"), IsInvalid("line 2: tag {{ does not end, expected }}"));
  EXPECT_THAT(Tokenize("\n\n{% if a"), IsInvalid("line 3: tag {% does not end"));
  EXPECT_THAT(Tokenize("{# \n\n"), IsInvalid("line 1: comment {# does not end"));
  EXPECT_THAT(Tokenize("{{ 'a\nb }}"), IsInvalid("line 1: string does not end"));
  EXPECT_THAT(Tokenize("{% raw %}{{"), IsInvalid("line 1: {% raw %} does not end"));
}

TEST(LexerTest, NamesCharactersAndBracketsThatDoNotBelong) {
  EXPECT_THAT(Tokenize("{{ a ? b }}"), IsInvalid("line 1: unexpected character \"?\""));
  EXPECT_THAT(Tokenize("{{ a\u00e9 }}"), IsInvalid("unexpected character \"\u00e9\""));
  EXPECT_THAT(Tokenize("{{ (a] }}"), IsInvalid("unexpected \"]\", expected \")\""));
  EXPECT_THAT(Tokenize("{{ 0x1f }}"), IsInvalid("number 0"));
}

TEST(LexerTest, RefusesEscapesThatAreNoCharacters) {
  EXPECT_THAT(Tokenize(R"({{ '\ud83d' }})"), IsInvalid("not a character"));
  EXPECT_THAT(Tokenize(R"({{ '\U00110000' }})"), IsInvalid("not a character"));
  EXPECT_THAT(Tokenize(R"({{ '\x4' }})"), IsInvalid("too few hexadecimal digits"));
}

TEST(LexerTest, RefusesWhatIsTooLargeOrNotUtf8) {
  EXPECT_THAT(Tokenize(std::string(kMaxTemplateBytes + 1, 'a')), IsInvalid("1048577 bytes"));
  EXPECT_THAT(Tokenize("ab\xff"), IsInvalid("byte 2: not UTF-8"));
}

TEST(ParserTest, NamesLineAndConstructThatAreNotSupported) {
  EXPECT_THAT(ParseTemplate("\n{% include 'x' %}"),
              IsInvalid("line 2: statement {% include %}: not supported"));
  EXPECT_THAT(ParseTemplate("\n{{ a | nope }}"), IsInvalid("line 2: filter \"nope\": not supp"));
  EXPECT_THAT(ParseTemplate("{{ a is nope }}"), IsInvalid("line 1: test \"nope\": not supported"));
  EXPECT_THAT(ParseTemplate("{% for a in b recursive %}{% endfor %}"), IsInvalid("recursive"));
  EXPECT_THAT(ParseTemplate("{{ f(*a) }}"), IsInvalid("argument * or **: not supported"));
  EXPECT_THAT(ParseTemplate("{% call f() %}{% endcall %}"), IsInvalid("{% call %}: not supported"));
}

TEST(ParserTest, SaysWhatItFoundAndExpected) {
  EXPECT_THAT(ParseTemplate("{{ a b }}"), IsInvalid("line 1: found \"b\", expected }}"));
  EXPECT_THAT(ParseTemplate("{% if a %}x"),
              IsInvalid("found \"the end of the template\", expected {% elif or else or endif %}"));
  EXPECT_THAT(ParseTemplate("{% endfor %}"), IsInvalid("{% endfor %} without its beginning"));
  EXPECT_THAT(ParseTemplate("{% break %}"), IsInvalid("{% break %} outside of a loop"));
  EXPECT_THAT(ParseTemplate("{% for x in y %}{% macro m() %}{% break %}"),
              IsInvalid("outside of a loop"));
}

TEST(ParserTest, RefusesDeepNestingOfEveryKind) {
  for (const char* opening : {"(", "[", "{'a':", "-", "not ", "a[", "f("}) {
    EXPECT_THAT(ParseTemplate("{{ " + Repeated(opening, 50000)), IsInvalid("line 1:")) << opening;
  }
  EXPECT_THAT(ParseTemplate(Repeated("{% if a %}", 50000)), IsInvalid("nested over 100 deep"));
  EXPECT_THAT(
      ParseTemplate("{% set " + Repeated("(", 5000) + "a" + Repeated(")", 5000) + " = 1 %}"),
      IsInvalid("nested over 100 deep"));
}

TEST(ParserTest, RefusesLongChainsThatWouldBeDeepTrees) {
  for (const char* link : {" + a", ".a", "[0]", " | trim", " and a", "()", " if a else a"}) {
    EXPECT_THAT(ParseTemplate("{{ a" + Repeated(link, 50000) + " }}"), IsInvalid("deep")) << link;
  }
  EXPECT_TRUE(ParseTemplate("{{ a" + Repeated(" ~ a", 50000) + " }}").ok());
  EXPECT_TRUE(ParseTemplate("{% if a %}" + Repeated("{% elif a %}", 50000) + "{% endif %}").ok());
}

TEST(InterpreterTest, StopsLoopsThatRunTooLong) {
  EXPECT_THAT(
      Render("{% for a in range(999) %}\n{% for b in range(9999) %}{% endfor %}{% endfor %}"),
      FailsWith(kExhausted, "line 2: for: more than"));
  EXPECT_THAT(Render("{% for a in range(9) %}\n{{ a }}{% endfor %}", "{}", {.max_steps = 20}),
              FailsWith(kExhausted, "line 2: more than 20 steps"));
}

TEST(InterpreterTest, StopsEndlessRecursion) {
  EXPECT_THAT(Render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              FailsWith(kExhausted, "inside each other"));
  EXPECT_THAT(Render("{% macro m(a=m()) %}{% endmacro %}{{ m() }}"),
              FailsWith(kExhausted, "inside each other"));
}

TEST(InterpreterTest, StopsTextThatGrowsWithoutEnd) {
  EXPECT_THAT(Render("{% set ns = namespace(t='ab') %}{% for i in range(99) %}"
                     "{% set ns.t = ns.t + ns.t %}{% endfor %}"),
              FailsWith(kExhausted, "bytes worked on"));
  EXPECT_THAT(Render("{% for i in range(99) %}{{ 'x' * 100 }}{% endfor %}", "{}",
                     {.max_output_bytes = 9000}),
              FailsWith(kExhausted, "more than 9000 bytes of output"));
}

TEST(InterpreterTest, StopsListsThatNestWithoutEnd) {
  EXPECT_THAT(Render("{% set ns = namespace(t=[]) %}{% for i in range(9999) %}"
                     "{% set ns.t = [ns.t] %}{% endfor %}"),
              FailsWith(kExhausted, "nested 65 deep"));
}

TEST(InterpreterTest, NamespaceThatHoldsItselfIsHarmless) {
  EXPECT_EQ(Render("{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns.ns.ns == ns }}")->bytes(),
            "True");
}

TEST(InterpreterTest, LoopKeptPastItsEndStillKnowsItsItems) {
  EXPECT_EQ(Render("{% set ns = namespace() %}{% for a in 'xyz' %}{% set ns.l = loop %}{% endfor %}"
                   "{{ ns.l.index }}{{ ns.l.previtem }}")
                ->bytes(),
            "3y");
}

TEST(InterpreterTest, UserTextStaysTheUsersThroughMacrosBlocksAndNamespaces) {
  constexpr char kJson[] = R"({"u": "USER"})";
  EXPECT_EQ(RenderMarked("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}", kJson), "<{USER}>");
  EXPECT_EQ(RenderMarked("{% set b %}[{{ u }}]{% endset %}{{ b | lower }}", kJson), "[{user}]");
  EXPECT_EQ(RenderMarked("{% set n = namespace(x=u) %}{{ n.x }}!", kJson), "{USER}!");
  EXPECT_EQ(RenderMarked("{% for c in u %}{{ c }}-{% endfor %}", kJson), "{U}-{S}-{E}-{R}-");
  EXPECT_EQ(RenderMarked("{% filter upper %}a{{ u }}{% endfilter %}", kJson), "A{USER}");
}

TEST(InterpreterTest, SpecialTokenAssembledFromUserTextIsStillUserText) {
  EXPECT_EQ(RenderMarked("{{ u.replace('*', '') }}", R"({"u": "<|im*_end|>"})"), "{<|im_end|>}");
}

}  // namespace
}  // namespace lowkey::jinja
