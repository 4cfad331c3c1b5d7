// The fuzz target over mutations of answers in every format, always the same ones.

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

constexpr std::string_view kAnswers[] = {
    "<think>\nHm.\n</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, "
    "true]}}\n</tool_call>\n<tool_call>{\"arguments\": \"{}\", \"name\": \"g\"}</tool_call>",
    "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": \"\\u00e9\"}}; {\"type\": "
    "\"function\", "
    "\"name\": \"g\", \"parameters\": {}}",
    "<|python_tag|>brave_search.call(query=\"a\\\"b\", n=3)",
    "Well. [TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {}, \"name\": "
    "\"g\"}]",
    "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": {}}[TOOL_CALLS]g[ARGS]{} h[ARGS]{}",
};

TEST(ToolParserFuzzTest, SurvivesTruncationAndMutation) {
  std::mt19937 random(1);
  for (const std::string_view answer : kAnswers) {
    for (const char format : {'\0', '\1', '\2', '\3', '\x81', '\x82', '\x83'}) {
      const std::string head = {format, '\7'};
      for (size_t n = 0; n <= answer.size(); ++n) {
        RunTarget(head + std::string(answer.substr(0, n)));
      }
      for (int i = 0; i < 1500; ++i) {
        RunTarget(head + MutateJson(std::string(answer), answer.size(), random));
      }
    }
  }
}

TEST(ToolParserFuzzTest, SurvivesTextMadeOfMarkers) {
  constexpr std::string_view kParts[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<think>",
                                         "</think>",
                                         "<|python_tag|>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "[CALL_ID]",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"name\"",
                                         "\"arguments\"",
                                         ":",
                                         ",",
                                         ";",
                                         "\"f\"",
                                         " ",
                                         "\n",
                                         "<",
                                         "f.call(",
                                         ")",
                                         "null",
                                         "{\"name\": \"f\", \"arguments\": {"};
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string text = {static_cast<char>(random()), static_cast<char>(random())};
    for (uint32_t n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    RunTarget(text);
  }
}

}  // namespace
}  // namespace lowkey
