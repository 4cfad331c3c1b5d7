#include "server/config/suggestions.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

constexpr std::string_view kFlags[] = {
    "max-new-tokens", "temperature", "top-k",   "repetition-penalty", "n",
    "context",        "port",        "threads", "cache-bytes",        "system"};
constexpr std::string_view kCommands[] = {"serve", "generate", "inspect", "eval"};

TEST(SuggestionsTest, NamesOfOtherProgramsAreKnown) {
  EXPECT_EQ(NearestFlag("max-tokens", kFlags), "max-new-tokens");
  EXPECT_EQ(NearestFlag("n-predict", kFlags), "max-new-tokens");
  EXPECT_EQ(NearestFlag("temp", kFlags), "temperature");
  EXPECT_EQ(NearestFlag("topk", kFlags), "top-k");
  EXPECT_EQ(NearestFlag("repeat-penalty", kFlags), "repetition-penalty");
  EXPECT_EQ(NearestFlag("ctx_size", kFlags), "context");
  EXPECT_EQ(NearestFlag("max_new_tokens", kFlags), "max-new-tokens");
}

TEST(SuggestionsTest, AliasOfAFlagThatTheCommandLacksIsNone) {
  constexpr std::string_view kOther[] = {"json", "config"};
  EXPECT_FALSE(NearestFlag("max-tokens", kOther).has_value());
}

TEST(SuggestionsTest, SharedWordsSuggestPastTheEditDistance) {
  EXPECT_EQ(NearestFlag("max-output-tokens", kFlags), "max-new-tokens");
  EXPECT_EQ(NearestFlag("kv-cache-bytes", kFlags), "cache-bytes");
  EXPECT_FALSE(NearestFlag("xylophone", kFlags).has_value());
}

TEST(SuggestionsTest, MistypedNamesAreNear) {
  EXPECT_EQ(NearestFlag("prot", kFlags), "port");
  EXPECT_EQ(NearestFlag("systm", kFlags), "system");
}

TEST(SuggestionsTest, CommandsHaveAliasesToo) {
  EXPECT_EQ(NearestCommand("run", kCommands), "generate");
  EXPECT_EQ(NearestCommand("perplexity", kCommands), "eval");
  EXPECT_EQ(NearestCommand("sevre", kCommands), "serve");
  EXPECT_FALSE(NearestCommand("xylophone", kCommands).has_value());
}

TEST(SuggestionsTest, QuestionNamesTheFlag) {
  EXPECT_EQ(DidYouMean("port", "--"), "; did you mean --port?");
  EXPECT_EQ(DidYouMean(std::nullopt, "--"), "");
}

}  // namespace
}  // namespace lowkey
