#include "server/grammar/schema/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/grammar/testing.h"

namespace lowkey::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* schema;
  std::vector<std::string> valid, others;
};

class SchemaTest : public testing::TestWithParam<Case> {};

TEST_P(SchemaTest, AcceptsValidTextsAndNoOthers) {
  const auto grammar = Schema(GetParam().schema);
  ASSERT_NE(grammar, nullptr) << GetParam().schema;
  for (const std::string& text : GetParam().valid) {
    EXPECT_TRUE(Accepts(grammar, text)) << GetParam().schema << " " << text;
  }
  for (const std::string& text : GetParam().others) {
    EXPECT_FALSE(Accepts(grammar, text)) << GetParam().schema << " " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, SchemaTest,
    testing::Values(Case{R"({"type":"null"})", {"null", " null"}, {"true", "  null", ""}},
                    Case{R"({"type":"boolean"})", {"true", "false"}, {"null", "\"true\""}},
                    Case{R"({"type":"integer"})",
                         {"0", "-7", "123456789012345678"},
                         {"01", "-0", "1.0", "1e3", "1234567890123456789"}},
                    Case{R"({"type":"number"})",
                         {"0", "-0.5", "1e10", "12.25E-3"},
                         {".5", "1.", "+1", "1e", "1e100", "00"}},
                    Case{R"({"type":"string"})",
                         {R"("")", R"("a\"\\\/\b\f\n\r\t\u00e9")", "\"\xC3\xA9\xF0\x9F\x98\x80\""},
                         {R"(")", "\"\n\"", R"("\x")", R"("\ud800")", "\"\xC3\"",
                          "\"\xED\xA0\x80\""}},
                    Case{R"({"type":["string","null"]})", {"null", "\"a\""}, {"1"}},
                    Case{R"({})", {"1", "null", "[1,{\"a\":[]}]", "{}"}, {"[1,]", "{\"a\"}"}},
                    Case{R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"null"}}})", {"null"}, {"1"}},
                    Case{R"({"$ref":"#/$defs/a%5B%62%20~1%]","$defs":{"a[b /%]":{"type":"null"}}})",
                         {"null"},
                         {"1"}}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, SchemaTest,
    testing::Values(
        Case{R"({"type":"integer","minimum":0,"maximum":255})",
             {"0", "9", "10", "199", "255"},
             {"-1", "256", "1000", "00"}},
        Case{R"({"type":"integer","minimum":-12,"maximum":-3})",
             {"-12", "-3", "-10"},
             {"-13", "-2", "3", "-123", "0"}},
        Case{R"({"type":"integer","exclusiveMinimum":-2,"exclusiveMaximum":2})",
             {"-1", "0", "1"},
             {"-2", "2"}},
        Case{R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}},
        Case{R"({"type":"integer","minimum":-2.5,"maximum":-0.5})", {"-2", "-1"}, {"0", "-3"}},
        Case{R"({"type":"number","minimum":1.25,"maximum":10})",
             {"1.25", "1.250", "1.3", "2", "9.99", "10", "10.0"},
             {"1.249", "1.2", "1", "10.01", "11", "1e1", "-5"}},
        Case{R"({"type":"number","exclusiveMinimum":0})",
             {"0.1", "0.001", "5", "1000000"},
             {"0", "0.0", "-1", "-0"}},
        Case{R"({"type":"number","exclusiveMaximum":0})", {"-0.1", "-5"}, {"0", "-0", "-0.0", "1"}},
        Case{R"({"type":"number","minimum":-1.5,"exclusiveMaximum":1e-3})",
             {"-1.5", "-1.49", "-1", "0", "0.0009", "-0.7"},
             {"-1.51", "-2", "0.001", "0.01", "1"}},
        Case{R"({"type":"number","minimum":99,"maximum":101})",
             {"99", "100", "100.5", "101"},
             {"98.9", "101.1", "9", "1000"}}));

INSTANTIATE_TEST_SUITE_P(
    Strings, SchemaTest,
    testing::Values(
        Case{R"({"type":"string","minLength":2,"maxLength":3})",
             {R"("ab")", R"("abc")", "\"\xC3\xA9\xE2\x82\xAC\"", R"("\n\u0041a")"},
             {R"("a")", R"("abcd")", R"("")"}},
        Case{R"({"type":"string","minLength":2})", {R"("ab")", R"("abcdefgh")"}, {R"("a")"}},
        Case{R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
        Case{R"({"type":"string","pattern":"^[A-Z]{2}-\\d+$"})",
             {R"("AB-1")", R"("AB-123")"},
             {R"("AB-")", R"("ab-1")", R"("xAB-1")", R"("AB-1x")"}},
        Case{R"({"type":"string","pattern":"b+"})", {R"("abc")", R"("b")"}, {R"("ac")", R"("")"}},
        Case{R"({"type":"string","pattern":"^a\"\\\\$"})", {R"("a\"\\")"}, {R"("a")"}},
        Case{R"({"type":"string","pattern":"^a+$","minLength":2,"maxLength":3})",
             {R"("aa")", R"("aaa")"},
             {R"("a")", R"("aaaa")", R"("ab")"}},
        Case{R"({"type":"string","format":"date"})",
             {R"("2024-01-31")", R"("1999-02-28")"},
             {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"}},
        Case{R"({"type":"string","format":"date-time"})",
             {R"("2024-01-31T23:59:59Z")", R"("2024-01-31T00:00:00.5+01:00")"},
             {R"("2024-01-31")", R"("2024-01-31T24:00:00Z")"}},
        Case{R"({"type":"string","format":"uuid"})",
             {R"("123e4567-e89b-12d3-a456-426614174000")"},
             {R"("123e4567")"}},
        Case{R"({"type":"string","format":"ipv4"})",
             {R"("192.168.0.1")"},
             {R"("256.1.1.1")", R"("1.1.1")"}},
        Case{R"({"type":"string","format":"email"})", {R"("a.b@example.org")"}, {R"("a@b")"}},
        // Names that JSON Schema does not define are annotations.
        Case{R"({"type":"string","format":"password"})", {R"("a b")"}, {"1"}},
        Case{R"({"type":"integer","format":"int32"})", {"1"}, {R"("1")"}}));

INSTANTIATE_TEST_SUITE_P(
    Arrays, SchemaTest,
    testing::Values(
        Case{R"({"type":"array","items":{"type":"integer"}})",
             {"[]", "[1]", "[1,2]", "[ 1, 2 ]", "[\n  1,\n  2\n]"},
             {"[1,]", "[,1]", "[1 2]", "[\"a\"]", "[1,  2]", "["}},
        Case{R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
             {"[null,null]", "[null,null,null]"},
             {"[]", "[null]", "[null,null,null,null]"}},
        Case{R"({"type":"array","items":{"type":"null"},"maxItems":0})", {"[]"}, {"[null]"}},
        Case{R"({"type":"array","items":{"type":"null"},"minItems":3})",
             {"[null,null,null]", "[null,null,null,null,null]"},
             {"[null,null]"}},
        Case{R"({"prefixItems":[{"type":"null"},{"type":"integer"}],"items":false})",
             {"[]", "[null]", "[null,1]"},
             {"[1]", "[null,1,2]", "[null,null]"}},
        Case{R"({"prefixItems":[{"type":"null"}],"items":{"type":"integer"},"minItems":2,
                 "maxItems":3})",
             {"[null,1]", "[null,1,2]"},
             {"[null]", "[null,1,2,3]", "[1,1]", "[]"}},
        Case{R"({"prefixItems":[{"type":"null"},{"type":"null"}],"minItems":1,"maxItems":1})",
             {"[null]"},
             {"[]", "[null,null]"}},
        Case{R"({"type":"array","minItems":1})", {"[{}]", "[1,\"a\"]"}, {"[]"}}));

INSTANTIATE_TEST_SUITE_P(
    Objects, SchemaTest,
    testing::Values(
        Case{
            R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},
                 "required":["a","b"],"additionalProperties":false})",
            {R"({"a":1,"b":null})", R"({ "a": 1, "b": null })", "{\n  \"a\": 1,\n  \"b\": null\n}"},
            {R"({"a":1})", R"({"b":null,"a":1})", R"({"a":1,"b":null,"c":2})", "{}",
             R"({"a":1 ,"b":null,})"}},
        Case{R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},
                 "c":{"type":"null"}},"required":["b"],"additionalProperties":false})",
             {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})",
              R"({"a":null,"b":null,"c":null})"},
             {"{}", R"({"a":null})", R"({"a":null,"c":null})", R"({,"b":null})"}},
        Case{R"({"type":"object","additionalProperties":{"type":"integer"}})",
             {"{}", R"({"x":1})", R"({"x":1,"y":2})"},
             {R"({"x":null})", R"({"x":1,})"}},
        Case{R"({"type":"object","properties":{"ab":{"type":"integer"}}})",
             {"{}", R"({"ab":1})", R"({"ab":1,"x":null})", R"({"a":null})", R"({"abc":[]})",
              R"({"":0})"},
             {R"({"ab":null})", R"({"x":1,"ab":null})", R"({"ab":1,"ab":2})"}},
        Case{R"({"type":"object","required":["x"],"additionalProperties":{"type":"integer"}})",
             {R"({"x":1})", R"({"x":1,"y":2})"},
             {"{}", R"({"y":2})"}},
        Case{R"({"type":"object","properties":{"a":false,"b":{"type":"null"}},
                 "additionalProperties":false})",
             {"{}", R"({"b":null})"},
             {R"({"a":1})"}},
        Case{R"({"type":"object","properties":{"\"\n\u00e9":{"type":"null"}},
                 "required":["\"\n\u00e9"],"additionalProperties":false})",
             {"{\"\\\"\\n\xC3\xA9\":null}"},
             {"{}"}}));

INSTANTIATE_TEST_SUITE_P(
    Combined, SchemaTest,
    testing::Values(
        Case{R"({"enum":["a","b\n",1,1.5,null,true,[1,"x"],{"k":2}]})",
             {R"("a")", R"("b\n")", "1", "1.5", "null", "true", R"([1,"x"])", R"({"k":2})"},
             {"2", R"("c")", R"([1])"}},
        Case{R"({"const":"x"})", {R"("x")"}, {R"("y")"}},
        Case{R"({"type":"integer","enum":["a",1,2.5,7],"maximum":5})", {"1"}, {"7", R"("a")"}},
        Case{R"({"type":"string","enum":["a","bb"],"minLength":2})", {R"("bb")"}, {R"("a")"}},
        Case{R"({"enum":[1,2,3],"const":2})", {"2"}, {"1"}},
        Case{R"({"anyOf":[{"type":"string"},{"type":"null"}]})", {R"("a")", "null"}, {"1"}},
        Case{R"({"oneOf":[{"type":"integer"},{"const":"all"}]})", {"1", R"("all")"}, {R"("x")"}},
        Case{R"({"type":"object","properties":{"t":{"type":"string"}},
                 "anyOf":[{"required":["t"]},{"required":["u"]}]})",
             {R"({"t":"a"})", R"({"u":1})"},
             {"{}", R"({"t":1})"}},
        Case{R"({"anyOf":[
                 {"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},
                  "required":["k","v"],"additionalProperties":false},
                 {"type":"object","properties":{"k":{"const":"b"},"v":{"type":"string"}},
                  "required":["k","v"],"additionalProperties":false}]})",
             {R"({"k":"a","v":1})", R"({"k":"b","v":"x"})"},
             {R"({"k":"a","v":"x"})", R"({"k":"b","v":1})"}},
        Case{R"({"type":"object","properties":{"a":{"type":"string","pattern":"date"},
                 "b":{"type":"string","format":"date"}},"required":["a","b"]})",
             {R"({"a":"a date","b":"2024-02-03"})"},
             {R"({"a":"a date","b":"a date"})", R"({"a":"2024-02-03","b":"2024-02-03"})"}},
        Case{R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                 {"properties":{"b":{"type":"null"},"a":{"minimum":5}},"required":["b"]}]})",
             {R"({"a":5,"b":null})", R"({"a":7,"b":null,"c":1})"},
             {R"({"a":4,"b":null})", R"({"a":5})"}},
        Case{R"({"allOf":[{"type":"object","properties":{"a":{"type":"null"}},
                           "additionalProperties":false},
                          {"properties":{"b":{"type":"null"}}}]})",
             {"{}", R"({"a":null})"},
             {R"({"b":null})"}},
        Case{R"({"$ref":"#/$defs/n","maximum":3,"$defs":{"n":{"type":"integer","minimum":1}}})",
             {"1", "3"},
             {"0", "4"}},
        Case{R"({"type":"object","properties":{"v":{"type":"integer"},
                 "next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],
                 "additionalProperties":false})",
             {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
             {R"({"v":1,"next":{}})", R"({"v":1})"}},
        Case{R"({"$defs":{"tree":{"type":"array","items":{"$ref":"#/$defs/tree"}}},
                 "$ref":"#/$defs/tree"})",
             {"[]", "[[],[[]]]"},
             {"[1]"}},
        Case{R"({"title":"t","description":"d","default":{"not":1},"examples":[1],"deprecated":true,
                 "readOnly":false,"$comment":"c","$schema":"s","$id":"i","type":"null"})",
             {"null"},
             {"1"}},
        Case{R"({"type":"array","items":{"type":"integer"},"uniqueItems":false})", {"[1,1]"}, {}},
        Case{R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],
                 "$defs":{"a":{"type":"object","properties":{"c":{"$ref":"#"}},
                               "additionalProperties":false}}})",
             {"{}", R"({"c":{"c":{}}})"},
             {R"({"c":1})"}}));

TEST(SchemaErrorTest, NameTheKeywordAndItsPlace) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"x", "json_schema: not JSON"},
      {"[]", "json_schema: "},
      {R"({"not":{}})", "json_schema: #/not: this keyword is not supported"},
      {R"({"properties":{"a/b":{"multipleOf":2}}})",
       "json_schema: #/properties/a~1b/multipleOf: this keyword is not supported"},
      {R"({"items":{"uniqueItems":true}})", "#/items/uniqueItems: true, expected false"},
      {R"({"patternProperties":{}})", "#/patternProperties: this keyword"},
      {R"({"if":{}})", "#/if: this keyword"},
      {R"({"contains":{}})", "#/contains: this keyword"},
      {R"({"minProperties":1})", "#/minProperties: this keyword"},
      {R"({"unevaluatedProperties":false})", "#/unevaluatedProperties: this keyword"},
      {R"({"$dynamicRef":"#"})", "#/$dynamicRef: this keyword"},
      {R"({"$anchor":"a"})", "#/$anchor: this keyword"},
      {R"({"properties":{"a":{"$id":"x"}}})", "supported at the root alone"},
      {R"({"type":"text"})", "#/type: \"text\", expected null, boolean"},
      {R"({"type":[]})", "#/type: [], expected"},
      {R"({"properties":[]})", "#/properties: [], expected an object of schemas"},
      {R"({"properties":{"a":1}})", "#/properties/a: 1, expected a schema"},
      {R"({"required":"a"})", "#/required: \"a\", expected an array of names"},
      {R"({"items":[{}]})", "#/items: [{}], expected a schema"},
      {R"({"minLength":-1})", "#/minLength: -1, expected a whole number of 0..65534"},
      {R"({"maxItems":1e9})", "#/maxItems: 1000000000.0, expected a whole number"},
      {R"({"maxLength":1.5})", "#/maxLength: 1.5, expected a whole number"},
      {R"({"minimum":"1"})", "#/minimum: \"1\", expected a number"},
      {R"({"enum":[]})", "#/enum: [], expected an array of at least one"},
      {R"({"anyOf":[]})", "#/anyOf: [], expected an array of at least one schema"},
      {R"({"pattern":"("})", "json_schema: #/pattern: byte 1: a ( without its )"},
      {R"({"type":"string","format":"iri"})", "#/format: \"iri\" is not supported"},
      {R"({"$ref":"other.json"})", "\"other.json\", expected # or #/"},
      {R"({"$ref":"#/$defs/x"})", "\"#/$defs/x\": no schema is there"},
      {R"({"$ref":"#/default","default":{"minLength":"x"}})", "#/default/minLength: \"x\""},
      {R"({"enum":["a"],"pattern":"a"})", "enum or const beside keywords"},
      {R"({"a":1,"a":2})", "appears twice"},
      {R"({"$ref":"#"})", "begins with itself"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "choices nested deeper than 32"},
      {R"({"allOf":[{"$ref":"#"}]})", "references and allOf lead through"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "no text satisfies it"},
      {R"({"type":"integer","minimum":1e30})", "no text satisfies it"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no text satisfies it"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "no text satisfies it"},
      {R"({"type":"array","minItems":2,"maxItems":1})", "no text satisfies it"},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no text satisfies it"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})",
       "no text satisfies it"}};
  for (const auto& [schema, message] : cases) {
    Budget budget;
    const auto grammar = CompileJsonSchema(schema, budget);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << schema;
    EXPECT_THAT(std::string(grammar.status().message()), testing::StartsWith("json_schema: "))
        << schema;
  }
}

TEST(SchemaErrorTest, HostileSchemasEndWithinTheBudget) {
  std::string deep, wide = R"({"type":"object","properties":{)", references = R"({"$defs":{)",
                    options = R"({"allOf":[)", enums = R"({"enum":[)", shared = options;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  for (int i = 0; i < 3'000; ++i) {
    absl::StrAppend(&wide, i > 0 ? "," : "", "\"property", i, "\":{}");
    absl::StrAppend(&enums, i > 0 ? "," : "", "\"value ", i, "\"");
  }
  for (int i = 0; i < 1'500; ++i) {
    absl::StrAppend(&references, "\"d", i, "\":{\"items\":{\"$ref\":\"#/$defs/d", i + 1, "\"}},");
  }
  absl::StrAppend(&references, R"("d1500":{}},"$ref":"#/$defs/d0"})");
  // 2^30 combinations of alternatives, and as many of properties.
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&options, i > 0 ? "," : "", R"({"anyOf":[{"minLength":)", i,
                    R"(},{"maxLength":)", 100 + i, "}]}");
    absl::StrAppend(&shared, i > 0 ? "," : "", R"({"anyOf":[{"properties":{"a)", i,
                    R"(":{}}},{"required":["b)", i, "\"]}]}");
  }
  // Parts whose schemas for items add up, for each of many properties.
  std::string parts = R"({"$defs":{"x":{"allOf":[{})",
              empty = R"({"allOf":[{"properties":{"p":{"enum":[1)";
  for (int i = 0; i < 2'500; ++i)
    absl::StrAppend(&parts, ",{\"items\":{\"const\":", 1000 + i, "}}");
  parts += R"(]}},"properties":{"a":{"$ref":"#/$defs/x"})";
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&parts, ",\"p", i, "\":{\"$ref\":\"#/$defs/x\",\"type\":\"array\"}");
  }
  for (int i = 0; i < 10'000; ++i) empty += ",\"\"";
  empty += "]}}}";
  for (int i = 0; i < 10'000; ++i) empty += ",{}";
  // Members that are found by comparing names, again and again.
  std::string names = R"({"properties":{"a":{})", renamed;
  for (int i = 0; i < 4'000; ++i) absl::StrAppend(&names, ",\"", i, "\":{}");
  renamed = names + R"(},"allOf":[{})";
  for (int i = 0; i < 100; ++i) renamed += R"(,{"required":["a"]})";
  const std::vector<std::string> hostile = {
      parts + "}}",
      renamed + "]}",
      empty + "]}",
      deep,
      wide + "}}",
      references,
      options + "]}",
      shared + "]}",
      enums + "]}",
      R"({"type":"array","minItems":1000,"maxItems":1000,"items":{"type":"array","minItems":1000,
          "maxItems":1000,"items":{"type":"string","minLength":60000}}})",
      R"({"type":"string","pattern":"^(.{0,500}a){0,500}$","maxLength":60000})",
      R"({"type":"number","minimum":1e400,"maximum":1e-400})",
      R"({"items":{"$ref":"#"},
          "properties":{"a":{"$ref":"#/items"},"b":{"$ref":"#/properties/a"}}})"};
  for (const std::string& schema : hostile) {
    Budget budget;
    const auto grammar = CompileJsonSchema(schema, budget);
    if (grammar.ok()) {
      EXPECT_LE((*grammar)->n_states(), kMaxStates);
      GrammarConstraint constraint = ConstraintOf(*grammar);
      std::mt19937 random(1);
      RandomText(constraint, *ByteVocabulary(), random, 200);
    } else {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << grammar.status();
    }
  }
}

TEST(SchemaForcedTest, ForcedBytesLeadThroughKeys) {
  const auto grammar = Schema(R"({"type":"object","properties":{"name":{"type":"string"}},
                                  "required":["name"],"additionalProperties":false})");
  ASSERT_NE(grammar, nullptr);
  GrammarConstraint constraint = ConstraintOf(grammar);
  for (char c : std::string("{\"")) ASSERT_TRUE(constraint.Advance(static_cast<uint8_t>(c)).ok());
  EXPECT_EQ(constraint.ForcedBytes(), "name\":");
  EXPECT_EQ(constraint.ForcedBytes(3), "nam");
}

}  // namespace
}  // namespace lowkey::grammar
