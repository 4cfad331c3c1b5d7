// Texts that are drawn under the form of a tool format are calls to the format's parser, and
// nothing else, with arguments that their schemas accept.
#include "server/api/openai/tools/calls_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/text/tool_call_grammar.h"
#include "tests/server/api/openai/tools/joined_events.h"
#include "tests/server/grammar/schema/validator.h"
#include "tests/server/grammar/testing.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using grammar::Accepts;
using grammar::Vocabulary;
using nlohmann::json;
using Reasoning = ToolCallsForm::Reasoning;

const std::vector<CallableTool>& Tools() {
  static const auto* const tools = new std::vector<CallableTool>{
      {"tools[0].function.parameters", "get_weather",
       R"({"type":"object","properties":{"city":{"type":"string","maxLength":12},
           "days":{"type":"integer","minimum":1,"maximum":14},"unit":{"enum":["C","F"]}},
           "required":["city","unit"],"additionalProperties":false})"},
      {"tools[1].function.parameters", "get_weather.now",
       R"({"type":"object","properties":{},"additionalProperties":false})"},
      {"tools[2].function.parameters", "add-2",
       R"({"type":"object","properties":{"terms":{"type":"array","items":{"type":"number"},
           "maxItems":3},"note":{"anyOf":[{"type":"null"},{"type":"string","maxLength":8}]}},
           "required":["terms"],"additionalProperties":false})"}};
  return *tools;
}

struct Style {
  ToolFormat format;
  const char* template_text;
};
constexpr Style kStyles[] = {{ToolFormat::kHermes, "<tool_call>"},
                             {ToolFormat::kLlama3, "\"parameters\""},
                             {ToolFormat::kMistral, "[TOOL_CALLS]"},
                             {ToolFormat::kMistral, "[TOOL_CALLS] [ARGS]"}};

std::shared_ptr<const grammar::Grammar> Compile(const ToolCallsForm& form) {
  grammar::Budget budget;
  return grammar::Must(CompileToolCalls(form, budget));
}

// Checks the calls of a text; returns their number.
int CheckCalls(const Style& style, const std::string& text, const ToolParserOptions& options) {
  int n_calls = 0;
  std::string name;
  for (const ToolEvent& event : JoinedEvents(style.format, text, {}, options)) {
    if (event.kind == ToolEvent::Kind::kReasoning) continue;
    EXPECT_NE(event.kind, ToolEvent::Kind::kContent) << text;
    if (event.kind == ToolEvent::Kind::kCallBegin) {
      ++n_calls;
      name = event.name;
    }
    if (event.kind != ToolEvent::Kind::kArguments) continue;
    const json arguments = json::parse(event.text, nullptr, false);
    EXPECT_FALSE(arguments.is_discarded()) << text;
    const auto tool = std::find_if(Tools().begin(), Tools().end(),
                                   [&name](const CallableTool& t) { return t.name == name; });
    EXPECT_NE(tool, Tools().end()) << name;
    if (tool == Tools().end()) continue;
    const json schema = json::parse(tool->parameters);
    EXPECT_EQ(grammar::WhyInvalid(schema, schema, arguments), "") << text;
  }
  return n_calls;
}

TEST(CallsFormTest, WhatModelsWriteIsOfTheForm) {
  const struct {
    Style style;
    const char* text;
  } texts[] = {
      {kStyles[0],
       "<tool_call>\n{\"name\": \"add-2\", \"arguments\": {\"terms\": [1, 2]}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"get_weather.now\", \"arguments\": "
       "{}}\n</tool_call>"},
      {kStyles[1],
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"unit\": "
       "\"C\"}}"},
      {kStyles[1],
       "{\"name\": \"get_weather.now\", \"parameters\": {}}; {\"name\": "
       "\"get_weather.now\", \"parameters\": {}}"},
      {kStyles[2],
       "[TOOL_CALLS] [{\"name\": \"add-2\", \"arguments\": {\"terms\": []}}, {\"name\":"
       " \"get_weather.now\", \"arguments\": {}}]"},
      {kStyles[2], "[TOOL_CALLS][{\"name\": \"get_weather.now\", \"arguments\": {}}]"},
      {kStyles[3], "[TOOL_CALLS]add-2[ARGS]{\"terms\": [1.5]}[TOOL_CALLS]get_weather.now[ARGS]{}"},
  };
  for (const auto& [style, text] : texts) {
    const auto grammar = Compile(CallsFormOf(style.format, style.template_text, Tools(), true));
    EXPECT_TRUE(Accepts(grammar, text)) << text;
    EXPECT_GT(CheckCalls(style, text, {}), 0) << text;
  }
}

TEST(CallsFormTest, RandomTextsAreValidCallsToTheParser) {
  const Tokenizer& tokenizer = TestTokenizer();
  const auto demo =
      std::make_shared<const Vocabulary>(tokenizer, tokenizer.vocab_size(), tokenizer.eos_ids());
  std::mt19937 random(11);
  for (const Style& style : kStyles) {
    for (const bool is_parallel : {false, true}) {
      for (const Reasoning reasoning : {Reasoning::kNone, Reasoning::kAllowed}) {
        ToolCallsForm form = CallsFormOf(style.format, style.template_text, Tools(), is_parallel);
        form.reasoning = reasoning;
        const auto grammar = Compile(form);
        ASSERT_NE(grammar, nullptr);
        const ToolParserOptions options = {.may_reason = reasoning != Reasoning::kNone};
        int n_complete = 0;
        for (const auto& vocabulary : {grammar::ByteVocabulary(), demo}) {
          for (int i = 0; i < 10; ++i) {
            auto constraint = grammar::ConstraintOf(grammar, vocabulary);
            auto text = grammar::RandomText(constraint, *vocabulary, random, 600);
            if (!text.has_value()) continue;
            std::erase(*text, grammar::kControlByte);  // a control piece shows its name
            ++n_complete;
            const int n_calls = CheckCalls(style, *text, options);
            EXPECT_TRUE(n_calls == 1 || (is_parallel && n_calls > 1)) << *text;
          }
        }
        EXPECT_GT(n_complete, 0);
      }
    }
  }
}

TEST(CallsFormTest, OneCallUnlessCallsMayBeParallel) {
  for (const Style& style : kStyles) {
    const std::vector<CallableTool> one = {Tools()[1]};
    EXPECT_EQ(CallsFormOf(style.format, style.template_text, one, false).most_calls, 1);
    EXPECT_EQ(CallsFormOf(style.format, style.template_text, one, true).most_calls, 128);
    EXPECT_EQ(CallsFormOf(style.format, style.template_text, one, true).tools[0].field,
              "tools[1].function.parameters");
  }
}

}  // namespace
}  // namespace lowkey
