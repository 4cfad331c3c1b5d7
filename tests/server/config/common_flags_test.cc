#include "server/config/common_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

FlagValues Parse(const std::vector<std::string>& arguments) {
  CommandSpec spec;
  spec.name = "try";
  spec.groups = {{"", ModelFlags()},     {"", EngineFlags()},   {"", ServingFlags()},
                 {"", AttentionFlags()}, {"", SamplingFlags()}, {"", DraftFlags()},
                 {"", GenerationFlags()}};
  FlagSources sources;
  sources.environment = [](const std::string&) { return std::nullopt; };
  auto values = ParseFlags(spec, arguments, {}, sources);
  EXPECT_TRUE(values.ok()) << values.status();
  return *std::move(values);
}

TEST(CommonFlagsTest, ARanksDefaultIsWhatUsersType) {
  const absl::Span<const Flag> flags = AttentionFlags();
  const auto rank = std::find_if(flags.begin(), flags.end(),
                                 [](const Flag& flag) { return flag.name == "rank"; });
  ASSERT_NE(rank, flags.end());
  EXPECT_THAT(std::string(rank->help), ::testing::EndsWith("[1/4]"));
}

TEST(CommonFlagsTest, EngineOptionsComeFromTheirFlags) {
  const auto options = ReadServingOptions(
      Parse({"--dtype", "bfloat16", "--threads", "3", "--cache-bytes", "512M", "--context", "100",
             "--max-batch-tokens", "64", "--max-running", "5", "--max-queued", "6"}));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->dtype, EngineOptions::Dtype::kBFloat16);
  EXPECT_EQ(options->n_threads, 3);
  EXPECT_EQ(options->cache_bytes, int64_t{512} << 20);
  EXPECT_EQ(options->context_tokens, 100);
  EXPECT_EQ(options->max_batch_tokens, 64);
  EXPECT_EQ(options->max_running_seqs, 5);
  EXPECT_EQ(options->max_queued_requests, 6);
}

TEST(CommonFlagsTest, DefaultsAreTheEnginesOwn) {
  const auto options = ReadServingOptions(Parse({}));
  ASSERT_TRUE(options.ok());
  const EngineOptions expected;
  EXPECT_EQ(options->dtype, expected.dtype);
  EXPECT_EQ(options->max_batch_tokens, expected.max_batch_tokens);
  EXPECT_EQ(options->max_running_seqs, expected.max_running_seqs);
  EXPECT_EQ(options->max_queued_requests, expected.max_queued_requests);
}

TEST(CommonFlagsTest, AttentionInWordsTakesItsFlags) {
  const auto choice =
      ParseAttention({"atp", "--rank", "1/8", "--basis=kv", "--block", "128", "--window", "0",
                      "--refine", "64", "--basis-storage", "int8", "--principal-storage=cache",
                      "--decomposition", "alternating", "--kept-storage", "int8"});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->mechanism, "atp");
  EXPECT_EQ(choice->options, (OptionValues{{"rank", "1/8"},
                                           {"basis", "kv"},
                                           {"block_tokens", 128},
                                           {"window_blocks", 0},
                                           {"refine_tokens", 64},
                                           {"basis_storage", "int8"},
                                           {"principal_storage", "cache"},
                                           {"decomposition", "alternating"},
                                           {"kept_storage", "int8"}}));
  EXPECT_EQ(ParseAttention({"standard", "--cache-storage=int4"})->options,
            (OptionValues{{"cache_storage", "int4"}}));
  EXPECT_EQ(ParseAttention({})->mechanism, std::nullopt);
  const auto linear = ParseAttention({"atp", "--readout", "linear", "--merge"});
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->options, (OptionValues{{"readout", "linear"}, {"merge", true}}));
  const auto shift = ParseAttention({"taylorshift", "--form", "direct", "--variant=normalised"});
  ASSERT_TRUE(shift.ok()) << shift.status();
  EXPECT_EQ(shift->mechanism, "taylorshift");
  EXPECT_EQ(shift->options, (OptionValues{{"form", "direct"}, {"variant", "normalised"}}));
  EXPECT_EQ(ResolveAttention(*shift, {})->taylorshift.variant, TaylorVariant::kNormalized);
}

TEST(CommonFlagsTest, BadAttentionInWordsIsNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"atp", "standard"}, "more than one"},
      {{"atp", "--block", "x"}, "--block: \"x\", expected an integer in 64..4096"},
      {{"atp", "--rnk", "4"}, "unknown flag --rnk; did you mean --rank?"}};
  for (const auto& [words, part] : cases) {
    const auto choice = ParseAttention(words);
    EXPECT_EQ(choice.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(choice.status().message()), HasSubstr(part));
  }
}

TEST(CommonFlagsTest, NamedAttentionHasNoAutoAndNoneOfItsRules) {
  for (const Flag& flag : NamedAttentionFlags()) {
    EXPECT_THAT(std::string(flag.help), Not(AnyOf(StartsWith("auto: "), HasSubstr(", auto ["))))
        << flag.name;
  }
  EXPECT_TRUE(ParseAttention({"auto", "--objective", "memory"}).ok());
  EXPECT_EQ(ParseAttention({"atp", "--objective", "memory"}, NamedAttentionFlags()).status(),
            absl::InvalidArgumentError("unknown flag --objective"));
}

TEST(CommonFlagsTest, EveryAttentionOptionIsAFlagWhoseHelpSaysTheOwnerAndTheDefault) {
  const auto help_of = [](std::string_view name) -> std::string {
    for (const Flag& flag : AttentionFlags()) {
      if (flag.name == name) return std::string(flag.help);
    }
    return "";
  };
  EXPECT_EQ(help_of("basis-storage"), "atp: how a basis is stored: cache, int8 or int4 [cache]");
  EXPECT_EQ(help_of("sinks"), "atp: first tokens that stay exact [4]");
  for (const AttentionOption& option : AttentionOptionTable()) {
    EXPECT_THAT(help_of(option.flag), HasSubstr(std::string(MechanismName(option.owner)) + ": "));
  }
}

TEST(CommonFlagsTest, BadEngineOptionsAreNamed) {
  EXPECT_THAT(std::string(ReadServingOptions(Parse({"--dtype", "int4"})).status().message()),
              HasSubstr("--dtype: \"int4\", expected auto, float32, bfloat16, int8 or float8"));
  EXPECT_FALSE(ReadServingOptions(Parse({"--threads", "9999"})).ok());
  EXPECT_FALSE(ReadServingOptions(Parse({"--max-batch-tokens", "-1"})).ok());
  EXPECT_EQ(ReadServingOptions(Parse({"--max-batch-tokens", "0"}))->max_batch_tokens, 512);
  EXPECT_FALSE(ReadServingOptions(Parse({"--step-ms", "0"})).ok());
  EXPECT_EQ(
      ReadServingOptions(Parse({"--prefix-dir-bytes", "2G"})).status(),
      absl::InvalidArgumentError("--prefix-dir-bytes: \"2G\", expected none without --prefix-dir"));
  EXPECT_TRUE(ReadServingOptions(Parse({"--prefix-dir-bytes", "2G", "--prefix-dir", "d"})).ok());
}

TEST(CommonFlagsTest, GenerationTakesWhatIsGivenAndLeavesTheRest) {
  const auto none = ReadGeneration(Parse({}));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->sampling.temperature.has_value());
  EXPECT_FALSE(none->attention.mechanism.has_value());
  EXPECT_FALSE(none->max_new_tokens.has_value());
  const auto some = ReadGeneration(Parse({"--attention",
                                          "atp",
                                          "--rank",
                                          "1/4",
                                          "--block",
                                          "128",
                                          "--window",
                                          "0",
                                          "--stop",
                                          "a",
                                          "--stop",
                                          "b",
                                          "--seed",
                                          "7",
                                          "--temperature",
                                          "0.5",
                                          "--logit-bias",
                                          "3:-1",
                                          "--n",
                                          "2",
                                          "--ignore-eos",
                                          "--logprobs",
                                          "0",
                                          "--max-new-tokens",
                                          "9",
                                          "--draft",
                                          "lookup",
                                          "--priority",
                                          "-7"}));
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->attention.mechanism, "atp");
  EXPECT_EQ(some->attention.options,
            (OptionValues{{"rank", "1/4"}, {"block_tokens", 128}, {"window_blocks", 0}}));
  EXPECT_THAT(some->stop_texts, ElementsAre("a", "b"));
  EXPECT_EQ(some->sampling.seed, 7u);
  EXPECT_THAT(some->sampling.logit_bias, ElementsAre(Pair(3, -1.0f)));
  EXPECT_EQ(some->n, 2);
  EXPECT_TRUE(some->ignore_eos);
  EXPECT_EQ(some->logprobs, 0);
  EXPECT_EQ(some->max_new_tokens, 9);
  EXPECT_EQ(some->priority, -7);
  EXPECT_EQ(some->draft, "lookup");
  EXPECT_EQ(none->draft, std::nullopt);
}

TEST(CommonFlagsTest, GivenModelDirectoryIsTakenAsItIs) {
  EXPECT_EQ(*ModelDirectory(Parse({"--model", "somewhere"})), "somewhere");
}

}  // namespace
}  // namespace lowkey
