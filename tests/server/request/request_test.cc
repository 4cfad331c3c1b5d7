#include "server/request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lowkey {
namespace {

using ::testing::HasSubstr;

std::string AttentionError(const AttentionChoice& choice) {
  const absl::Status status = ResolveAttention(choice, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

std::string SamplingError(const SamplingChoice& choice) {
  const absl::Status status = ResolveSampling(choice, {}, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ResolveAttentionTest, TakesEveryOption) {
  AttentionChoice choice;
  choice.mechanism = "atp";
  choice.options = {{"rank", "16"},
                    {"basis", "kv"},
                    {"prefill", "compressed"},
                    {"block_tokens", 128},
                    {"sinks", 0},
                    {"window_blocks", 2},
                    {"refine_tokens", 64},
                    {"decomposition", "alternating"},
                    {"basis_storage", "int8"},
                    {"principal_storage", "int8"},
                    {"kept_storage", "int8"}};
  const auto options = ResolveAttention(choice, {});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->mechanism, Mechanism::kAtp);
  EXPECT_EQ(std::get<RankFixed>(options->atp.rank).rank, 16);
  EXPECT_EQ(options->atp.basis, AtpBasis::kKv);
  EXPECT_EQ(options->atp.prefill, AtpPrefill::kCompressed);
  EXPECT_EQ(options->atp.block_tokens, 128);
  EXPECT_EQ(options->atp.sinks, 0);
  EXPECT_EQ(options->atp.window_blocks, 2);
  EXPECT_EQ(options->atp.refine_tokens, 64);
  EXPECT_EQ(options->atp.decomposition, AtpDecomposition::kAlternating);
  EXPECT_EQ(options->atp.basis_storage, AtpStorage::kInt8);
  EXPECT_EQ(options->atp.principal_storage, AtpStorage::kInt8);
  EXPECT_EQ(options->atp.kept_storage, AtpStorage::kInt8);
  const auto linear = ResolveAttention(
      {.mechanism = "atp", .options = {{"readout", "linear"}, {"merge", true}}}, {});
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->atp.readout, AtpReadout::kLinear);
  EXPECT_TRUE(linear->atp.merge);
  EXPECT_EQ(AttentionLabel(*linear),
            "atp rank 0.25 basis layer block 512 window 1 readout linear merge prefill exact");
}

TEST(ResolveAttentionTest, KeepsTheDefaultsOfUnsetFields) {
  AttentionOptions defaults;
  defaults.mechanism = Mechanism::kAtp;
  defaults.atp.block_tokens = 256;
  const auto options = ResolveAttention({}, defaults);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->mechanism, Mechanism::kAtp);
  EXPECT_EQ(options->atp.block_tokens, 256);
}

TEST(ResolveAttentionTest, NamesWhatIsWrong) {
  EXPECT_THAT(AttentionError({.mechanism = "flash"}), HasSubstr("super or lasso"));
  EXPECT_THAT(AttentionError({.mechanism = "atp", .options = {{"rank", "2/1"}}}),
              HasSubstr("attention: "));
  EXPECT_THAT(AttentionError({.mechanism = "atp", .options = {{"block_tokens", 100}}}),
              HasSubstr("100"));
}

TEST(ResolveAttentionTest, TakesEveryOptionOfTaylorShift) {
  const auto options = ResolveAttention(
      {.mechanism = "taylorshift", .options = {{"form", "recurrent"}, {"variant", "plain"}}}, {});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->mechanism, Mechanism::kTaylorShift);
  EXPECT_EQ(options->taylorshift.form, TaylorForm::kRecurrent);
  EXPECT_EQ(options->taylorshift.variant, TaylorVariant::kPlain);
  EXPECT_THAT(AttentionError({.mechanism = "taylorshift", .options = {{"form", "state"}}}),
              HasSubstr("attention: unknown taylorshift form \"state\""));
}

TEST(ResolveAttentionTest, TheOldSpellingOfNormalizedIsReadAndNotWritten) {
  const auto options =
      ResolveAttention({.mechanism = "taylorshift", .options = {{"variant", "normalised"}}}, {});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->taylorshift.variant, TaylorVariant::kNormalized);
  EXPECT_EQ(AttentionLabel(*options), "taylorshift normalized form auto");
}

TEST(ResolveAttentionTest, TakesTheStorageOfAStandardCache) {
  const auto options = ResolveAttention({.options = {{"cache_storage", "int4"}}}, {});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->standard.storage, CacheStorage::kInt4);
  EXPECT_EQ(AttentionLabel(*options), "standard cache int4");
  EXPECT_THAT(AttentionError({.options = {{"cache_storage", "int1"}}}),
              HasSubstr("attention: unknown cache storage \"int1\""));
}

TEST(ResolveAttentionTest, RefusesOptionsThatTheMechanismWouldIgnore) {
  EXPECT_EQ(AttentionError({.mechanism = "taylorshift", .options = {{"rank", "8"}}}),
            "attention.rank: set, but the mechanism is \"taylorshift\", expected \"atp\"");
  EXPECT_EQ(AttentionError({.mechanism = "atp", .options = {{"variant", "plain"}}}),
            "attention.variant: set, but the mechanism is \"atp\", expected \"taylorshift\"");
  EXPECT_EQ(AttentionError({.mechanism = "atp", .options = {{"cache_storage", "int8"}}}),
            "attention.cache_storage: set, but the mechanism is \"atp\", expected \"standard\"");
  EXPECT_THAT(AttentionError({.options = {{"rank", "1/4"}}}), HasSubstr("attention.rank: set"));
  EXPECT_THAT(AttentionError({.mechanism = "standard", .options = {{"sinks", 4}}}),
              HasSubstr("attention.sinks: set"));
}

TEST(ResolveSamplingTest, RefusesEachFieldOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(SamplingError({.temperature = 2.5f}), HasSubstr("sampling: temperature"));
  EXPECT_THAT(SamplingError({.temperature = nan}), HasSubstr("temperature"));
  EXPECT_THAT(SamplingError({.top_p = 0.0f}), HasSubstr("top_p"));
  EXPECT_THAT(SamplingError({.min_p = 1.0f}), HasSubstr("min_p"));
  EXPECT_THAT(SamplingError({.repetition_penalty = 0.0f}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(SamplingError({.top_k = 101}), HasSubstr("top_k"));
  EXPECT_THAT(SamplingError({.logit_bias = {{100, 1.0f}}}), HasSubstr("logit_bias"));
}

TEST(ResolveSelectableTest, AutoTakesItsRulesFromRequestAndDefaults) {
  Defaults defaults;
  defaults.selection = SelectionRules{Objective::kMemory, {Mechanism::kStandard}, false};
  AttentionChoice choice;
  auto resolved = ResolveSelectable(choice, defaults);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(resolved->selection.has_value());
  EXPECT_EQ(resolved->selection->objective, Objective::kMemory);
  choice.mechanism = "auto";
  choice.objective = "latency";
  choice.allowed = {"atp", "efficient"};
  choice.allow_approximate = true;
  choice.max_perplexity_ratio = 1.5;
  choice.options["rank"] = "16";  // of atp, should it be chosen
  resolved = ResolveSelectable(choice, defaults);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->selection->objective, Objective::kLatency);
  EXPECT_EQ(resolved->selection->allowed,
            (std::vector<Mechanism>{Mechanism::kAtp, Mechanism::kEfficient}));
  EXPECT_TRUE(resolved->selection->allow_approximate);
  EXPECT_EQ(resolved->selection->max_perplexity_ratio, 1.5);
  EXPECT_EQ(std::get<RankFixed>(resolved->options.atp.rank).rank, 16);
  choice = {};
  choice.mechanism = "standard";
  resolved = ResolveSelectable(choice, defaults);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_FALSE(resolved->selection.has_value());
}

TEST(ResolveSelectableTest, UnknownMechanismsAreAnsweredWithAutoToo) {
  EXPECT_EQ(ResolveSelectable({.mechanism = "flash"}, {}).status(),
            absl::InvalidArgumentError(
                "attention: unknown attention mechanism \"flash\", expected standard, atp, "
                "taylorshift, optimised, efficient, super, lasso or auto"));
}

TEST(ResolveSelectableTest, NamesWhatIsWrong) {
  AttentionChoice choice;
  choice.objective = "latency";
  EXPECT_EQ(
      ResolveSelectable(choice, {}).status(),
      absl::InvalidArgumentError("attention.objective: set, but the mechanism is not \"auto\""));
  choice.mechanism = "auto";
  choice.objective = "speed";
  EXPECT_THAT(std::string(ResolveSelectable(choice, {}).status().message()),
              ::testing::HasSubstr("unknown objective \"speed\""));
  choice.objective.reset();
  choice.max_perplexity_ratio = 0.99;
  EXPECT_EQ(
      ResolveSelectable(choice, {}).status(),
      absl::InvalidArgumentError("attention.max_perplexity_ratio: 0.99, expected 1..1000000"));
  choice.max_perplexity_ratio.reset();
  choice.allowed = {"standard", "atp", "standard"};
  EXPECT_EQ(ResolveSelectable(choice, {}).status(),
            absl::InvalidArgumentError(
                "attention.allowed: standard twice, expected each mechanism once"));
  choice.allowed = {"magic"};
  EXPECT_THAT(std::string(ResolveSelectable(choice, {}).status().message()),
              ::testing::HasSubstr("attention.allowed"));
}

}  // namespace
}  // namespace lowkey
