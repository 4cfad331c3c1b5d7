#include "client/load/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::HasSubstr;

TEST(TraceTest, ReadsCommasWithAndWithoutNames) {
  for (const char* text :
       {"arrival_s,prompt_tokens,output_tokens\n0,10,4\n0.5,20,8\n", "0,10,4\r\n\n 0.5, 20, 8"}) {
    const auto rows = ParseTrace(text, "t.csv");
    ASSERT_TRUE(rows.ok()) << rows.status();
    ASSERT_EQ(rows->size(), 2u);
    EXPECT_EQ((*rows)[1].arrival_s, 0.5);
    EXPECT_EQ((*rows)[1].n_prompt_tokens, 20);
    EXPECT_EQ((*rows)[1].n_output_tokens, 8);
  }
}

TEST(TraceTest, ReadsJsonLinesAndIgnoresOtherFields) {
  const auto rows = ParseTrace(
      "{\"arrival_s\": 0, \"prompt_tokens\": 10, \"output_tokens\": 4}\n"
      "{\"arrival_s\": 1.5, \"prompt_tokens\": 7, \"output_tokens\": 2, \"user\": \"a\"}\n",
      "t.jsonl");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].arrival_s, 1.5);
  EXPECT_EQ((*rows)[1].n_prompt_tokens, 7);
}

TEST(TraceTest, RefusalsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"0,1,1\n0,1\n", "t:2: \"0,1\""},
      {"0,1,1\n0,0,1\n", "t:2"},
      {"0,1,1\n0,1,1048577\n", "t:2"},
      {"0,1,1\n-1,1,1\n", "t:2"},
      {"0,1,1\nnan,1,1\n", "t:2"},
      {"0,1,1\n86401,1,1\n", "t:2"},
      {"5,1,1\n4,1,1\n", "t:2: arrival at 4 s, expected at least 5 s"},
      {"0,1,1\nx,1,1\n", "t:2"},
      {"{\"arrival_s\": 0, \"prompt_tokens\": 1}", "t:1: output_tokens"},
      {"{\"arrival_s\": 0, \"prompt_tokens\": 1.5, \"output_tokens\": 1}", "t:1: prompt_tokens"},
      {"{\"arrival_s\"", "t:1"},
      {"", "no request"},
      {"a,b,c\n", "no request"}};
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseTrace(text, "t").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace lowkey
