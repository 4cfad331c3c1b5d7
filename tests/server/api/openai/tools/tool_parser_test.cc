// Answers of models with tools, in the formats that their templates teach, and texts that are
// almost in them.
#include "server/api/openai/tools/tool_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/api/openai/tools/joined_events.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// "content text", "think text", "call 0 name", "args 0 text".
std::vector<std::string> Lines(const std::vector<ToolEvent>& events) {
  std::vector<std::string> lines;
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        lines.push_back("content " + event.text);
        break;
      case ToolEvent::Kind::kReasoning:
        lines.push_back("think " + event.text);
        break;
      case ToolEvent::Kind::kCallBegin:
        lines.push_back(absl::StrCat("call ", event.index, " ", event.name));
        break;
      case ToolEvent::Kind::kArguments:
        lines.push_back(absl::StrCat("args ", event.index, " ", event.text));
    }
  }
  return lines;
}

// Parses a text as a whole, byte by byte, and cut in three. A text of fewer than 60 bytes is cut in
// every way, one of fewer than 300 bytes has about 60 second cuts for every first cut, and longer
// texts are not cut.
std::vector<std::string> Parse(ToolFormat format, const std::string& text,
                               const ToolParserOptions& options = {}) {
  const std::vector<ToolEvent> whole = JoinedEvents(format, text, {}, options);
  std::vector<size_t> every(text.size());
  std::iota(every.begin(), every.end(), 0);
  EXPECT_EQ(JoinedEvents(format, text, every, options), whole) << text;
  const size_t stride = text.size() / 60 + 1;
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size() && text.size() < 300; j += stride) {
      const bool is_equal = JoinedEvents(format, text, {i, j}, options) == whole;
      EXPECT_TRUE(is_equal) << text << " cut at " << i << " and " << j;
      if (!is_equal) return {};
    }
  }
  return Lines(whole);
}

std::vector<std::string> Hermes(const std::string& text, const ToolParserOptions& options = {}) {
  return Parse(ToolFormat::kHermes, text, options);
}
std::vector<std::string> Llama3(const std::string& text) {
  return Parse(ToolFormat::kLlama3, text);
}
std::vector<std::string> Mistral(const std::string& text) {
  return Parse(ToolFormat::kMistral, text);
}

TEST(ToolFormatTest, TemplatesSayTheFormat) {
  EXPECT_EQ(DetectToolFormat("{{ '<tool_call>\\n{\"name\": \"' }}"), ToolFormat::kHermes);
  EXPECT_EQ(DetectToolFormat("<tool_call>\n<function=f>\n"), ToolFormat::kNone);
  EXPECT_EQ(DetectToolFormat("<tool_call>{name}\n<arg_key>"), ToolFormat::kNone);
  EXPECT_EQ(DetectToolFormat("<|python_tag|> ... '\"parameters\": '"), ToolFormat::kLlama3);
  EXPECT_EQ(DetectToolFormat("<|start_header_id|> ... {\"name\": f, \"parameters\": {}}"),
            ToolFormat::kLlama3);
  EXPECT_EQ(DetectToolFormat("<|start_header_id|>{{ message }}"), ToolFormat::kNone);
  EXPECT_EQ(DetectToolFormat("{{ \"[TOOL_CALLS] [\" }}"), ToolFormat::kMistral);
  EXPECT_EQ(DetectToolFormat("<|im_start|>{{ content }}"), ToolFormat::kNone);
  EXPECT_EQ(DetectToolFormat(""), ToolFormat::kNone);
}

// What templates write of earlier calls is what they teach.
TEST(ToolFormatTest, CallsThatTemplatesWriteAreFound) {
  std::ifstream file(SourcePath("tests/tokenizer/chat/data/goldens.json"));
  const nlohmann::json goldens = nlohmann::json::parse(file);
  const auto detect = [&](const char* style) {
    return DetectToolFormat(goldens["styles"][style].get<std::string>());
  };
  EXPECT_EQ(detect("qwen"), ToolFormat::kHermes);
  EXPECT_EQ(detect("mistral"), ToolFormat::kMistral);
  EXPECT_EQ(detect("llama3"), ToolFormat::kLlama3);
  EXPECT_EQ(detect("chatml"), ToolFormat::kNone);
  // The first answer of the assistant in a case.
  const auto parse = [&](const std::string& name, ToolFormat format, const std::string& begin,
                         const std::string& end) {
    for (const nlohmann::json& one : goldens["cases"]) {
      if (one["name"] != name) continue;
      const std::string text = one["text"];
      const size_t at = text.find(begin) + begin.size();
      return Parse(format, text.substr(at, text.find(end, at) - at));
    }
    return std::vector<std::string>();
  };
  const std::string arguments =
      R"(args 0 {"place": "Oslo \"x\"", "n": 1, "r": 1.5, "ok": true, "no": null})";
  EXPECT_THAT(parse("qwen/calls", ToolFormat::kHermes, "assistant\n", "<|im_end|>"),
              ElementsAre("call 0 weather", arguments));
  EXPECT_THAT(parse("qwen/two_calls", ToolFormat::kHermes, "assistant\n", "<|im_end|>"),
              ElementsAre("content Sure.", "call 0 now", "args 0 {}", "call 1 now", "args 1 {}"));
  EXPECT_THAT(parse("mistral/calls", ToolFormat::kMistral, "[/INST]", "</s>"),
              ElementsAre("call 0 weather", arguments));
  EXPECT_THAT(parse("mistral/two_calls", ToolFormat::kMistral, "[/INST]", "</s>"),
              ElementsAre("call 0 now", "args 0 {}", "call 1 now", "args 1 {}"));
}

TEST(ToolFormatTest, HasNames) {
  EXPECT_EQ(ParseName<ToolFormat>("mistral").value(), ToolFormat::kMistral);
  EXPECT_EQ(ParseName<ToolFormat>("none").value(), ToolFormat::kNone);
  EXPECT_EQ(std::string(ParseName<ToolFormat>("xml").status().message()),
            "unknown tool format \"xml\", expected none, hermes, llama3 or mistral");
}

TEST(ToolFormatTest, PromptMayEndInReasoning) {
  EXPECT_TRUE(EndsInReasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(EndsInReasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(EndsInReasoning(" \n"));
}

TEST(ToolParserTest, WithoutAFormatEverythingIsContent) {
  EXPECT_THAT(Parse(ToolFormat::kNone, "<tool_call>{\"name\""),
              ElementsAre("content <tool_call>{\"name\""));
}

TEST(HermesTest, TextIsContent) {
  EXPECT_THAT(Hermes(""), IsEmpty());
  EXPECT_THAT(Hermes(" \n"), ElementsAre("content  \n"));
  EXPECT_THAT(Hermes("Hello <b>there</b> <tool> <tool_cal>\n"),
              ElementsAre("content Hello <b>there</b> <tool> <tool_cal>\n"));
}

TEST(HermesTest, CallsHaveNamesAndArguments) {
  EXPECT_THAT(
      Hermes("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"Paris\", \"days\": [1, 2.5e3]}}\n</tool_call>"),
      ElementsAre("call 0 get_weather", "args 0 {\"city\": \"Paris\", \"days\": [1, 2.5e3]}"));
}

TEST(HermesTest, SeveralCallsFollowText) {
  EXPECT_THAT(Hermes("I look.\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n"
                     "<tool_call>{\"name\":\"b\",\"arguments\":{\"x\":{}}}</tool_call>\n\nDone. "),
              ElementsAre("content I look.", "call 0 a", "args 0 {}", "call 1 b",
                          "args 1 {\"x\":{}}", "content \n\nDone. "));
}

TEST(HermesTest, ArgumentsMayComeFirstOrAsTextOrNotAtAll) {
  EXPECT_THAT(Hermes("<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>"),
              ElementsAre("call 0 f", "args 0 {\"a\": 1}"));
  EXPECT_THAT(Hermes(R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\u00e9\"}"}</tool_call>)"),
              ElementsAre("call 0 f", "args 0 {\"a\": \"\xC3\xA9\"}"));
  EXPECT_THAT(Hermes("<tool_call>{\"name\": \"f\"}</tool_call>"),
              ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>"),
              ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Hermes("<tool_call>{\"id\": 12, \"name\": \"f\", \"arguments\": {}}</tool_call>"),
              ElementsAre("call 0 f", "args 0 {}"));
}

TEST(HermesTest, TheClosingTagMayBeMissing) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";
  EXPECT_THAT(Hermes(call), ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Hermes(call + "\n" + call),
              ElementsAre("call 0 f", "args 0 {}", "call 1 f", "args 1 {}"));
  EXPECT_THAT(Hermes(call + " and text"), ElementsAre("call 0 f", "args 0 {}", "content and text"));
  EXPECT_THAT(Hermes(call + "</tool>"), ElementsAre("call 0 f", "args 0 {}", "content </tool>"));
}

TEST(HermesTest, WhatDoesNotParseIsContent) {
  for (const char* body : {"",
                           "{",
                           "{}",
                           "[]",
                           "null",
                           "{\"name\": \"f\"",
                           "{\"name\": 1, \"arguments\": {}}",
                           "{\"name\": \"\", \"arguments\": {}}",
                           "{\"name\": \"f\", \"arguments\": []}",
                           "{\"name\": \"f\", \"arguments\": 1}",
                           "{\"arguments\": {}}",
                           "{name: \"f\"}",
                           "{\"name\": \"f\\x\"}",
                           "{\"name\": \"\\ud800\", \"arguments\": {}}",
                           "{\"name\": \"a\nb\", \"arguments\": {}}",
                           "{\"arguments\": {\"a\": 01}, \"name\": \"f\"}",
                           "{\"arguments\": {\"a\": tru}, \"name\": \"f\"}",
                           "{\"arguments\": {]}",
                           "{\"name\": \"f\",}",
                           "<function=f>"}) {
    const std::string text = absl::StrCat("A <tool_call>", body, "</tool_call> B\n");
    EXPECT_THAT(Hermes(text), ElementsAre("content " + text));
    EXPECT_THAT(Hermes(absl::StrCat("<tool_call>", body)),
                ElementsAre(absl::StrCat("content <tool_call>", body)));
  }
}

TEST(HermesTest, ABrokenCallDoesNotHideTheNext) {
  EXPECT_THAT(Hermes("<tool_call>{\"name\": <tool_call>{\"name\": \"f\", \"arguments\": {}}"),
              ElementsAre("content <tool_call>{\"name\": ", "call 0 f", "args 0 {}"));
}

TEST(HermesTest, ArgumentsThatBreakOffAreCut) {
  EXPECT_THAT(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b"),
              ElementsAre("call 0 f", "args 0 {\"a\": 1, \"b"));
  EXPECT_THAT(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1]} rest"),
              ElementsAre("call 0 f", "args 0 {\"a\": 1", "content ]} rest"));
}

TEST(HermesTest, NameIsSentBeforeTheArgumentsAreWhole) {
  const auto parser = MakeToolParser(ToolFormat::kHermes);
  std::vector<ToolEvent> events;
  parser->Add("Well. <tool_call>{\"name\": \"f\", \"arguments\"", events);
  EXPECT_THAT(Lines(events), ElementsAre("content Well."));
  events.clear();
  parser->Add(": {\"a", events);
  EXPECT_THAT(Lines(events), ElementsAre("call 0 f", "args 0 {\"a"));
  EXPECT_THAT(events[0].id, MatchesRegex("call_[0-9a-f]+"));
  const std::string id = events[0].id;
  events.clear();
  parser->Add("\": 1}}</tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}", events);
  EXPECT_THAT(Lines(events), ElementsAre("args 0 \": 1}", "call 1 f", "args 1 {}"));
  EXPECT_NE(events[1].id, id);
}

TEST(HermesTest, ReasoningStandsBeforeTheAnswer) {
  EXPECT_THAT(Hermes("<think>\nHm, a <tool_call>?\n</think>\n\nYes."),
              ElementsAre("think Hm, a <tool_call>?", "content Yes."));
  EXPECT_THAT(Hermes("\n<think>\n\n</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>"),
              ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Hermes("<think>a </thin </think >b"), ElementsAre("think a </thin </think >b"));
  EXPECT_THAT(Hermes("<think>never ends\n"), ElementsAre("think never ends\n"));
  EXPECT_THAT(Hermes("Later: <think>x</think>"), ElementsAre("content Later: <think>x</think>"));
  EXPECT_THAT(Hermes("\n <thin"), ElementsAre("content \n <thin"));
}

TEST(HermesTest, AnswerMayBeginInReasoning) {
  const ToolParserOptions options = {.begins_in_reasoning = true};
  EXPECT_THAT(Hermes("\nHm.\n</think>\n\nYes.", options), ElementsAre("think Hm.", "content Yes."));
  EXPECT_THAT(
      Parse(ToolFormat::kLlama3, "Hm.</think>{\"name\": \"f\", \"parameters\": {}}", options),
      ElementsAre("think Hm.", "call 0 f", "args 0 {}"));
}

TEST(HermesTest, CutMarksBehindACallAreNoContent) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";
  for (const char* cut : {"<", "</tool", "\n</tool_call", "</tool_call>\n<tool_ca"}) {
    EXPECT_THAT(Hermes(call + cut), ElementsAre("call 0 f", "args 0 {}")) << cut;
  }
  EXPECT_THAT(Hermes(call + "</tool_call> so <"),
              ElementsAre("call 0 f", "args 0 {}", "content  so <"));
  EXPECT_THAT(Hermes(call + "</tool_call>\n<tool_call>{\"na"),
              ElementsAre("call 0 f", "args 0 {}", "content \n<tool_call>{\"na"));
}

TEST(HermesTest, NothingButCallsHasNoContentWhereverItEnds) {
  const ToolParserOptions options = {.is_calls_only = true};
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n";
  EXPECT_THAT(Hermes("\n <tool_call>{\"name\": \"f\", \"argu", options), ElementsAre());
  EXPECT_THAT(Hermes("<thi", options), ElementsAre());
  EXPECT_THAT(Hermes(call + call.substr(0, 20), options), ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Hermes("<think>a</think>" + call, options),
              ElementsAre("think a", "call 0 f", "args 0 {}"));
}

TEST(HermesTest, NoMoreIsHeldThanTheBound) {
  // White space, an open string, and arguments before their name could go on without end.
  const std::string fill(kMaxHeldBytes + 1000, 'x');
  for (const std::string& text :
       {std::string(kMaxHeldBytes + 1000, ' ') + "end",
        "<tool_call>{\"arguments\": {\"a\": \"" + fill + "\"}, \"name\": \"f\"}",
        "<tool_call>{\"other\": \"" + fill + "\", \"name\": \"f\"}",
        "<tool_call>" + std::string(kMaxHeldBytes + 1000, ' ') + "{\"name\": \"f\"}"}) {
    const auto parser = MakeToolParser(ToolFormat::kHermes);
    std::vector<ToolEvent> events;
    parser->Add(text, events);
    ASSERT_FALSE(events.empty());
    EXPECT_GT(events[0].text.size(), kMaxHeldBytes);
    parser->End(events);
    EXPECT_EQ(Lines(events), std::vector<std::string>{"content " + text});
  }
  // Once the call has begun, nothing is held.
  const auto parser = MakeToolParser(ToolFormat::kHermes);
  std::vector<ToolEvent> events;
  parser->Add("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" + fill, events);
  EXPECT_EQ(events.back().text.size(), fill.size() + 7);
}

TEST(HermesTest, DeepArgumentsAreCut) {
  const std::string deep =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(70, '[') +
      std::string(70, ']') + "}}";
  EXPECT_THAT(Hermes(deep),
              ElementsAre("call 0 f", StartsWith("args 0 {\"a\": [["), StartsWith("content [[")));
}

TEST(Llama3Test, TheWholeAnswerIsACall) {
  EXPECT_THAT(Llama3("{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}"),
              ElementsAre("call 0 get_weather", "args 0 {\"city\": \"Paris\"}"));
  EXPECT_THAT(Llama3("\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}\n"),
              ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(Llama3("{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}"),
              ElementsAre("call 0 f", "args 0 {}"));
  EXPECT_THAT(
      Llama3("{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}"),
      ElementsAre("call 0 f", "args 0 {}", "call 1 g", "args 1 {}"));
}

TEST(Llama3Test, OtherJsonIsContent) {
  for (const char* text :
       {"{\"answer\": 42}", "{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"Bob\"}", "{}", "{",
        "[{\"name\": \"f\", \"parameters\": {}}]", "It is {\"name\": \"f\", \"parameters\": {}}",
        "{\"name\": \"f\", \"parameters\": [1]}", " \n", "<|python", "<|python_tag|>",
        "<|python_tag|>import os\nos.remove('x')", "<|python_tag|>{\"a\": 1}"}) {
    EXPECT_THAT(Llama3(text), ElementsAre(std::string("content ") + text));
  }
}

TEST(Llama3Test, TextMayFollow) {
  EXPECT_THAT(Llama3("{\"name\": \"f\", \"parameters\": {}} or so"),
              ElementsAre("call 0 f", "args 0 {}", "content  or so"));
  EXPECT_THAT(Llama3("{\"name\": \"f\", \"parameters\": {}}; then"),
              ElementsAre("call 0 f", "args 0 {}", "content ; then"));
  EXPECT_THAT(Llama3("{\"name\": \"f\", \"parameters\": {}}; {\"x\": 1}"),
              ElementsAre("call 0 f", "args 0 {}", "content ; {\"x\": 1}"));
}

TEST(Llama3Test, BuiltInToolsAreCalledBehindTheTag) {
  EXPECT_THAT(Llama3("<|python_tag|>brave_search.call(query=\"tall \\\"towers\\\"; (2)\", n=3, "
                     "deep=True, x=None, y='a\\n')"),
              ElementsAre("call 0 brave_search",
                          "args 0 {\"query\":\"tall \\\"towers\\\"; (2)\",\"n\":3,\"deep\":true,"
                          "\"x\":null,\"y\":\"a\\n\"}"));
  EXPECT_THAT(Llama3("Well:<|python_tag|>f.call()"),
              ElementsAre("content Well:", "call 0 f", "args 0 {}"));
  for (const char* text : {"f.call(1)", "f.call(a=)", "f.call(a=\"x\"", "f.call(a=[1])", "f(a=1)",
                           ".call()", "f.call(a=1, a=2)", "f.call(a=1 b=2)", "f.call(a=b)",
                           "f.call(a=\"\\\")", "print(\"hi\")"}) {
    EXPECT_THAT(Llama3(absl::StrCat("<|python_tag|>", text)),
                ElementsAre(absl::StrCat("content <|python_tag|>", text)));
  }
  // Without the tag this is text.
  EXPECT_THAT(Llama3("f.call(a=1)"), ElementsAre("content f.call(a=1)"));
}

TEST(MistralTest, ArrayOfCalls) {
  EXPECT_THAT(
      Mistral("[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", "
              "\"arguments\": {}}]"),
      ElementsAre("call 0 a", "args 0 {\"x\": 1}", "call 1 b", "args 1 {}"));
  EXPECT_THAT(Mistral("Sure. [TOOL_CALLS][{\"arguments\": {}, \"name\": \"a\"}] ok"),
              ElementsAre("content Sure.", "call 0 a", "args 0 {}", "content  ok"));
}

TEST(MistralTest, NamedCalls) {
  EXPECT_THAT(
      Mistral("[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]b[ARGS]{}"),
      ElementsAre("call 0 get_weather", "args 0 {\"city\": \"Paris\"}", "call 1 b", "args 1 {}"));
  EXPECT_THAT(Mistral("[TOOL_CALLS]a[ARGS]{} b[ARGS]{\"x\": [{}]}\n"),
              ElementsAre("call 0 a", "args 0 {}", "call 1 b", "args 1 {\"x\": [{}]}"));
  EXPECT_THAT(Mistral("[TOOL_CALLS]a[CALL_ID]abcDEF123[ARGS]{}"),
              ElementsAre("call 0 a", "args 0 {}"));
}

TEST(MistralTest, IdsAreNineLettersAndDigits) {
  const auto id = [](const char* text) {
    return JoinedEvents(ToolFormat::kMistral, text, {}, {}, /*keeps_ids=*/true).at(0).id;
  };
  EXPECT_EQ(id("[TOOL_CALLS]a[CALL_ID]abcDEF123[ARGS]{}"), "abcDEF123");
  EXPECT_THAT(id("[TOOL_CALLS]a[CALL_ID]abc[ARGS]{}"), MatchesRegex("[0-9A-Za-z]+"));
  EXPECT_EQ(id("[TOOL_CALLS]a[CALL_ID]abc[ARGS]{}").size(), 9u);
  EXPECT_EQ(id("[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {}}]").size(), 9u);
}

TEST(MistralTest, WhatDoesNotParseIsContent) {
  for (const char* text : {"[TOOL_CALLS]", "[TOOL_CALLS] ", "[TOOL_CALLS][]", "[TOOL_CALLS] text",
                           "[TOOL_CALLS]{}", "[TOOL_CALLS]a[ARG]{}", "[TOOL_CALLS]a[ARGS][]",
                           "[TOOL_CALLS]a[ARGS] x", "[TOOL_CALLS]a", "[TOOL_CALLS]a b[ARGS]{}",
                           "[TOOL_CALLS]a[CALL_ID]-[ARGS]{}", "[TOOL_CALLS][{\"name\": \"a\"",
                           "[TOOL_CALLS][1, 2]", "a[ARGS]{}", "[TOOL", "x [1] [TOOL_CALL]"}) {
    EXPECT_THAT(Mistral(text), ElementsAre(std::string("content ") + text));
  }
  EXPECT_THAT(Mistral("[TOOL_CALLS]a[TOOL_CALLS]b[ARGS]{}"),
              ElementsAre("content [TOOL_CALLS]a", "call 0 b", "args 0 {}"));
  EXPECT_THAT(Mistral("[TOOL_CALLS]a[ARGS]{}b[c] d"),
              ElementsAre("call 0 a", "args 0 {}", "content b[c] d"));
  EXPECT_THAT(Mistral("[TOOL_CALLS]a[ARGS]{\"x\"} y"),
              ElementsAre("call 0 a", "args 0 {\"x\"", "content } y"));
  EXPECT_THAT(Mistral("[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {}}, 5]"),
              ElementsAre("call 0 a", "args 0 {}", "content , 5]"));
}

TEST(MistralTest, NamesAreBounded) {
  const std::string text = "[TOOL_CALLS]" + std::string(300, 'n') + "[ARGS]{}";
  EXPECT_THAT(Mistral(text), ElementsAre("content " + text));
}

}  // namespace
}  // namespace lowkey
