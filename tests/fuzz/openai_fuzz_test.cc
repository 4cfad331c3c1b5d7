// The fuzz target over mutations of good bodies, always the same ones, and over attacks.

#include <gtest/gtest.h>

#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

const std::string kSeeds[] = {
    R"({"model": "tales@atp", "prompt": [[1, 2], [3]], "max_tokens": 5, "logprobs": 1, "echo": true,
        "stop": ["a", "\u00e9"], "seed": -1, "logit_bias": {"7": 1.5}, "n": 2, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        "lowkey": {"attention": {"mechanism": "atp", "rank": 0.25}, "timeout_ms": 10}})",
    R"({"model": "tales", "messages": [{"role": "developer", "content": "x"}, {"role": "user",
        "content": [{"type": "text", "text": "h\u0000i"}]}, {"role": "assistant", "tool_calls":
        [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "chat_template_kwargs": {"x": true}, "logprobs": true, "top_logprobs": 3})",
    R"({"prompt": "Once upon", "return_token_strs": true, "add_special_tokens": false})",
    R"({ "a" : [1, {"b": "]}\""}, 2.5e3] , "\u0062":null,"c":"\\","d":true })",
    R"({"token_ids": [1, 2], "continuation_token_ids": [[3], [4, 5]],
        "attention": {"allowed": ["atp"], "max_perplexity_ratio": 1.5, "merge": true}})",
    R"({"model": "tales", "prompt": "x", "guided_choice": ["a", "b"]})",
    R"({"model": "tales", "messages": [{"role": "user", "content": "x"}], "tools": [ {"type":
        "function", "function": {"name": "f"}} , {"type": "function", "function": {"name": "g",
        "parameters": {"type": "object", "properties": {"a": {"enum": ["[]}", 1]}}}}}],
        "tool_choice": {"type": "function", "function": {"name": "g"}},
        "parallel_tool_calls": false})",
};

TEST(OpenAiFuzzTest, AcceptsItsSeeds) {
  for (size_t i = 0; i < std::size(kSeeds); ++i) RunTarget(static_cast<char>(i) + kSeeds[i]);
}

TEST(OpenAiFuzzTest, SurvivesTruncation) {
  for (size_t i = 0; i < std::size(kSeeds); ++i) {
    for (size_t n = 0; n < kSeeds[i].size(); ++n) {
      RunTarget(static_cast<char>(i) + kSeeds[i].substr(0, n));
    }
  }
}

TEST(OpenAiFuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    for (size_t i = 0; i < std::size(kSeeds); ++i) {
      // A body is read as each endpoint's.
      RunTarget(static_cast<char>(random() % 5) + MutateJson(kSeeds[i], kSeeds[i].size(), random));
    }
  }
}

TEST(OpenAiFuzzTest, RefusesBodiesThatGrowInMemory) {
  const size_t n = size_t{4} << 20;
  for (const char* piece : {"{},", "[],", "0,", "\"\","}) {
    std::string body = "{\"prompt\":[";
    while (body.size() + 16 < n) body += piece;
    body.back() = ']';
    for (const char endpoint : {0, 3}) RunTarget(endpoint + body + "}");
  }
  RunTarget(std::string(1, '\0') + std::string(n, '['));
  RunTarget(std::string(1, '\3') + "{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}");
}

}  // namespace
}  // namespace lowkey
