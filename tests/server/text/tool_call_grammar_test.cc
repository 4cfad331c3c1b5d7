#include "server/text/tool_call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/grammar/testing.h"

namespace lowkey {
namespace {

using grammar::Accepts;
using grammar::Budget;
using grammar::IsIn;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = CallMark::Kind;
using Reasoning = ToolCallsForm::Reasoning;

constexpr char kNumber[] =
    R"({"type":"object","properties":{"n":{"type":"integer","maximum":9,"minimum":0}},
        "required":["n"],"additionalProperties":false})";

// Calls such as `<f>{"n": 1}</f>` of the tools "f", "fg", ... with "," between them.
ToolCallsForm FormOf(const std::vector<std::string>& schemas, int most_calls = 1) {
  ToolCallsForm form;
  std::string name;
  for (size_t i = 0; i < schemas.size(); ++i) {
    name.push_back(static_cast<char>('f' + i));
    form.tools.push_back({absl::StrCat("tools[", i, "].function.parameters"),
                          schemas[i],
                          {{Kind::kPiece, absl::StrCat("<", name, ">")}, {Kind::kSpace, ""}},
                          {{Kind::kText, absl::StrCat("</", name, ">")}}});
  }
  form.separator = {{Kind::kText, ","}};
  form.most_calls = most_calls;
  return form;
}

std::shared_ptr<const grammar::Grammar> Compile(const ToolCallsForm& form) {
  Budget budget;
  return grammar::Must(CompileToolCalls(form, budget));
}

std::string Refusal(const ToolCallsForm& form) {
  Budget budget;
  const auto compiled = CompileToolCalls(form, budget);
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << compiled.status();
  return std::string(compiled.status().message());
}

TEST(ToolCallGrammarTest, EachToolHasItsOwnArguments) {
  const auto grammar = Compile(
      FormOf({kNumber, R"({"properties":{"a":{"type":"null"}},"additionalProperties":false})"}));
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(Accepts(grammar, "<f>{\"n\": 1}</f>"));
  EXPECT_TRUE(Accepts(grammar, " <f> {\n  \"n\":1 }</f>"));
  EXPECT_TRUE(Accepts(grammar, "<fg>{\"a\":null}</fg>"));
  EXPECT_TRUE(Accepts(grammar, "<fg>{}</fg>"));
  for (const char* text : {"", "<f>{}</f>", "<f>{\"n\": 10}</f>", "<f>{\"a\":null}</f>",
                           "<fg>{\"n\": 1}</fg>", "<f>{\"n\": 1}</fg>", "<f>{\"n\": 1}",
                           "<f>{\"n\": 1}</f>,", "<f>{\"n\": 1}</f>,<f>{\"n\": 1}</f>",
                           "x<f>{\"n\": 1}</f>", "<f>{\"n\": 1}</f>x", "<h>{}</h>"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(ToolCallGrammarTest, CallsAreCounted) {
  ToolCallsForm form = FormOf({kNumber, "{}"}, 3);
  form.begin = {{Kind::kText, "["}};
  form.end = {{Kind::kSpace, ""}, {Kind::kText, "]"}};
  const auto grammar = Compile(form);
  ASSERT_NE(grammar, nullptr);
  const std::string one = "<f>{\"n\":1}</f>", other = "<fg>{\"x\": [1, \"y\"]}</fg>";
  EXPECT_TRUE(Accepts(grammar, "[" + one + "]"));
  EXPECT_TRUE(Accepts(grammar, "[" + one + "," + other + " ]"));
  EXPECT_TRUE(Accepts(grammar, "[" + other + "," + other + "," + one + "]"));
  EXPECT_FALSE(Accepts(grammar, "[]"));
  EXPECT_FALSE(Accepts(grammar, "[" + one + "," + one + "," + one + "," + one + "]"));
  EXPECT_FALSE(Accepts(grammar, "[" + one + one + "]"));
  EXPECT_FALSE(Accepts(grammar, "[" + one + ",]"));
}

TEST(ToolCallGrammarTest, ArgumentsAreObjectsWhateverElseTheSchemaAllows) {
  for (const char* schema :
       {"{}", R"({"type":["object","null","array"]})", R"({"$ref":"#/$defs/o","$defs":{"o":{}}})",
        R"({"anyOf":[{"type":"string"},{"type":"object"}]})"}) {
    const auto grammar = Compile(FormOf({schema}));
    ASSERT_NE(grammar, nullptr) << schema;
    EXPECT_TRUE(Accepts(grammar, "<f>{\"any\": [1]}</f>")) << schema;
    for (const char* text : {"<f>null</f>", "<f>[]</f>", "<f>\"\"</f>", "<f>1</f>"}) {
      EXPECT_FALSE(Accepts(grammar, text)) << schema << text;
    }
  }
}

TEST(ToolCallGrammarTest, ReferencesStayWithinTheirSchema) {
  const auto schema = [](const char* type) {
    return absl::StrCat(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/t"},)",
                        R"("b":{"$ref":"#"}},"additionalProperties":false,"$defs":{"t":{"type":")",
                        type, "\"}}}");
  };
  const auto grammar = Compile(FormOf({schema("null"), schema("boolean")}));
  ASSERT_NE(grammar, nullptr);
  EXPECT_TRUE(Accepts(grammar, "<f>{\"a\":null,\"b\":{\"b\":{\"a\":null}}}</f>"));
  EXPECT_TRUE(Accepts(grammar, "<fg>{\"a\":true,\"b\":{\"b\":{\"a\":false}}}</fg>"));
  EXPECT_FALSE(Accepts(grammar, "<f>{\"a\":true}</f>"));
  EXPECT_FALSE(Accepts(grammar, "<fg>{\"b\":{\"a\":null}}</fg>"));
}

TEST(ToolCallGrammarTest, ReasoningMayComeFirst) {
  ToolCallsForm form = FormOf({"{}"});
  const std::string call = "<f>{}</f>", thought = "a < b </thin\xE2\x82\xAC </ <think> <f>{}</f>";
  EXPECT_FALSE(Accepts(Compile(form), "<think>x</think>" + call));
  form.reasoning = Reasoning::kAllowed;
  const auto allowed = Compile(form);
  EXPECT_TRUE(Accepts(allowed, call));
  EXPECT_TRUE(Accepts(allowed, "<think>" + thought + "</think>\n\n" + call));
  EXPECT_FALSE(Accepts(allowed, thought + "</think>\n\n" + call));
  EXPECT_FALSE(Accepts(allowed, "<think>" + thought));
  EXPECT_FALSE(Accepts(allowed, "<think>a</think>b</think>" + call));
  form.reasoning = Reasoning::kBegun;
  const auto begun = Compile(form);
  EXPECT_TRUE(Accepts(begun, thought + "</think>" + call));
  EXPECT_TRUE(Accepts(begun, "</think> " + call));
  EXPECT_FALSE(Accepts(begun, call));
}

TEST(ToolCallGrammarTest, ControlPiecesComeWhereTheirMarkDoesAndNowhereElse) {
  std::vector<std::string> texts;
  for (int i = 0; i < 255; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
  texts.push_back("");
  texts.push_back("<end>");
  const int32_t mark = 257, other = 258;
  texts.push_back(grammar::kControlByte + std::string("<f>"));
  texts.push_back(grammar::kControlByte + std::string("<g>"));
  const auto vocabulary =
      std::make_shared<const grammar::Vocabulary>(texts, std::vector<int32_t>{256});
  auto constraint = grammar::ConstraintOf(Compile(FormOf({"{}"})), vocabulary);
  EXPECT_TRUE(IsIn(*constraint.Mask(), mark));
  EXPECT_TRUE(IsIn(*constraint.Mask(), '<'));
  EXPECT_FALSE(IsIn(*constraint.Mask(), other));
  ASSERT_TRUE(constraint.Advance(mark).ok());
  for (const char c : std::string("{\"key")) {
    EXPECT_FALSE(IsIn(*constraint.Mask(), mark));
    ASSERT_TRUE(constraint.Advance(c).ok()) << c;
  }
  EXPECT_FALSE(IsIn(*constraint.Mask(), mark));
}

TEST(ToolCallGrammarTest, ErrorsNameTheToolsField) {
  EXPECT_THAT(Refusal(FormOf({kNumber, R"({"properties":{"a":{"multipleOf":2}}})"})),
              StartsWith("tools[1].function.parameters: json_schema: #/properties/a/multipleOf: "
                         "this keyword is not supported"));
  EXPECT_THAT(Refusal(FormOf({R"({"type":"string"})"})),
              HasSubstr("tools[0].function.parameters: json_schema: #: no object satisfies it"));
  EXPECT_THAT(Refusal(FormOf({"[]"})), StartsWith("tools[0].function.parameters: json_schema"));
  EXPECT_THAT(Refusal(FormOf({R"({"$ref":"#/$defs/none"})"})),
              StartsWith("tools[0].function.parameters: "));
  EXPECT_THAT(Refusal(FormOf({R"({"properties":{"a":false},"required":["a"]})"})),
              StartsWith("tools: "));
}

TEST(ToolCallGrammarTest, HostileToolsAreBounded) {
  std::string deep = "{}", wide = "{\"properties\":{";
  for (int i = 0; i < 60; ++i) deep = "{\"properties\":{\"a\":" + deep + "}}";
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&wide, i > 0 ? "," : "", "\"k", i, "\":{\"minLength\":2}");
  }
  wide += "}}";
  const std::string pattern =
      R"({"properties":{"a":{"type":"string","pattern":"^(.{0,500}a){0,500}$"}}})";
  for (const ToolCallsForm& form : {FormOf({deep}), FormOf(std::vector<std::string>(20, wide), 128),
                                    FormOf(std::vector<std::string>(20, pattern), 128)}) {
    EXPECT_THAT(Refusal(form), StartsWith("tools"));
  }
  // As many tools as a request may have.
  std::vector<std::string> many(128, kNumber);
  ToolCallsForm form = FormOf(many, 128);
  for (size_t i = 0; i < form.tools.size(); ++i) {
    form.tools[i].begin = {{Kind::kText, absl::StrCat("{\"name\": \"tool_", i, "\": ")}};
    form.tools[i].end = {{Kind::kText, "}"}};
  }
  EXPECT_NE(Compile(form), nullptr);
}

}  // namespace
}  // namespace lowkey
