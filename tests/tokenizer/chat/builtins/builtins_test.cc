// Who wrote what after filters and methods, and the errors of both. Their results are in goldens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/chat/render.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey::jinja {
namespace {

constexpr char kUser[] = R"({"u": " Hi There ", "c": "a,b", "l": ["x", "y"], "d": {"k": "v"}})";

std::string Of(const std::string& expression) {
  return RenderMarked("<{{ " + expression + " }}>", kUser);
}

TEST(BuiltinsTest, CuttingKeepsTheOrigin) {
  EXPECT_EQ(Of("u.strip()"), "<{Hi There}>");
  EXPECT_EQ(Of("u | trim"), "<{Hi There}>");
  EXPECT_EQ(Of("('[' + u + ']')[:3]"), "<[{ H}>");
  EXPECT_EQ(Of("('x,' + c).split(',')[1]"), "<{a}>");
  EXPECT_EQ(Of("('x,' + c).split(',')[0]"), "<x>");
  EXPECT_EQ(Of("(u + 'end').removesuffix('end')"), "<{ Hi There }>");
  EXPECT_EQ(Of("('a' + c) | first"), "<a>");
  EXPECT_EQ(Of("('a' + c) | last"), "<{b}>");
  EXPECT_EQ(Of("('a' + c) | reverse"), "<{b,a}a>");
}

TEST(BuiltinsTest, JoiningKeepsTheOrigin) {
  EXPECT_EQ(Of("l | join(', ')"), "<{x}, {y}>");
  EXPECT_EQ(Of("'-'.join(l)"), "<{x}-{y}>");
  EXPECT_EQ(Of("'a' ~ c ~ 'z'"), "<a{a,b}z>");
  EXPECT_EQ(Of("c * 2"), "<{a,ba,b}>");
}

TEST(BuiltinsTest, ReplacingKeepsTheOriginOfBoth) {
  EXPECT_EQ(Of("c | replace(',', ';')"), "<{a};{b}>");
  EXPECT_EQ(Of("c.replace(',', '')"), "<{ab}>");
  EXPECT_EQ(Of("'1,2'.replace(',', c)"), "<1{a,b}2>");
}

TEST(BuiltinsTest, CaseAndIndentKeepTheOrigin) {
  EXPECT_EQ(Of("('x' + c) | upper"), "<X{A,B}>");
  EXPECT_EQ(Of("(c + '\\n' + c) | indent(2)"), "<{a,b}\n  {a,b}>");
}

TEST(BuiltinsTest, KeysAndDefaultsKeepTheOrigin) {
  EXPECT_EQ(Of("(d.items() | list)[0][0]"), "<{k}>");
  EXPECT_EQ(Of("nope | default(c)"), "<{a,b}>");
  EXPECT_EQ(Of("nope | default('t')"), "<t>");
}

TEST(BuiltinsTest, UnsupportedMethodsAreNamed) {
  EXPECT_THAT(Render("{{ 'a'.format(1) }}"), IsInvalid("line 1: .format: str.format: method not"));
  EXPECT_THAT(Render("{{ 'a'.nope() }}"), IsInvalid("'nope' is undefined"));
}

TEST(BuiltinsTest, ChangingAListOrDictIsRefused) {
  EXPECT_THAT(Render("{% set l = [] %}\n{% if l.append(1) %}{% endif %}"),
              IsInvalid("line 2: .append: list.append: refused, a template may not change it"));
  EXPECT_THAT(Render("{{ {}.update({}) }}"), IsInvalid("dict.update: refused"));
}

TEST(BuiltinsTest, ArgumentsAreNamedInErrors) {
  EXPECT_THAT(Render("{{ 'a' | replace('b') }}"), IsInvalid("argument new: missing"));
  EXPECT_THAT(Render("{{ 'a' | trim(3) }}"), IsInvalid("argument chars: int, expected str"));
  EXPECT_THAT(Render("{{ 'a' | indent(1, width=2) }}"), IsInvalid("argument width: given twice"));
  EXPECT_THAT(Render("{{ 'a' | indent(-1) }}"), IsInvalid("argument width: -1, expected 0..64"));
  EXPECT_THAT(Render("{{ 1 | tojson(indent=99) }}"), IsInvalid("argument indent: 99"));
  EXPECT_THAT(Render("{{ [1] | map('nope') }}"), IsInvalid("\"nope\" is not supported"));
  EXPECT_THAT(Render("{{ [1] | select('nope') }}"), IsInvalid("test \"nope\" is not supported"));
}

TEST(BuiltinsTest, TimeFormatsThatGrowAreRefused) {
  EXPECT_THAT(Render("{{ strftime_now('%9999d') }}"), IsInvalid("format: not supported after %"));
  EXPECT_THAT(Render("{{ strftime_now('%Z') }}"), IsInvalid("format: not supported after %"));
  EXPECT_THAT(Render("{{ strftime_now('%') }}"), IsInvalid("format: not supported after %"));
  EXPECT_THAT(Render("{{ strftime_now('x' * 257) }}"),
              IsInvalid("257 bytes, expected at most 256"));
  EXPECT_EQ(Render("{{ strftime_now('%B ' * 80) }}")->bytes().substr(0, 12), "March March ");
}

TEST(BuiltinsTest, RaisedMessageIsCutAtACharacter) {
  const auto text = Render("{{ raise_exception('\u4e2d' * 5000) }}");
  EXPECT_EQ(text.status().message().size(), std::string("line 1: ").size() + 1023);
}

}  // namespace
}  // namespace lowkey::jinja
