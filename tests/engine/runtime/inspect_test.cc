#include "engine/runtime/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "engine/loader/checkpoint.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

TEST(SummarizeModelTest, StatesWhatAnEngineWouldTakeAndHold) {
  ModelConfig config = TinyConfig();
  config.context_tokens = 4096;  // several of atp's blocks
  const TinyModel model({.config = config});
  EngineOptions options;
  options.cache_bytes = int64_t{8} << 20;
  const auto summary = SummarizeModel(*OpenCheckpoint(model.path()).value(), options);
  ASSERT_TRUE(summary.ok()) << summary.status();
  const auto engine = CreateEngine(OpenCheckpoint(model.path()).value(), options, nullptr);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(summary->cache_bytes, (*engine)->limits().cache_bytes);
  EXPECT_EQ(summary->weight_bytes, (*engine)->Stats().weight_bytes);
  EXPECT_EQ(summary->dtype, (*engine)->Stats().dtype);
  ASSERT_EQ(summary->mechanisms.size(), 7u);
  const MechanismMemory& standard = summary->mechanisms[0];
  EXPECT_EQ(standard.n_full_sequences, summary->cache_bytes / standard.bytes_full_context);
  EXPECT_EQ(standard.fixed_bytes, 0);
  for (int i : {1, 2, 3, 4}) {
    const MechanismMemory& quantized = summary->mechanisms[i];
    EXPECT_EQ(quantized.attention.mechanism, Mechanism::kStandard);
    EXPECT_FALSE(quantized.exact);
    EXPECT_LT(quantized.bytes_per_token, summary->mechanisms[i - 1].bytes_per_token);
  }
  const MechanismMemory& atp = summary->mechanisms[5];
  EXPECT_FALSE(atp.exact);
  EXPECT_LT(atp.bytes_full_context, standard.bytes_full_context);
  EXPECT_GT(atp.n_full_sequences, standard.n_full_sequences);
  EXPECT_LT(atp.bytes_per_token, standard.bytes_per_token);
  const MechanismMemory& shift = summary->mechanisms[6];
  EXPECT_EQ(shift.attention.mechanism, Mechanism::kTaylorShift);
  EXPECT_FALSE(shift.exact);
  EXPECT_GT(shift.n_full_sequences, 0);
  EXPECT_EQ(shift.bytes_per_token, 0);  // once the state has taken over
  EXPECT_GT(shift.fixed_bytes, 0);      // the state
}

TEST(SummarizeModelTest, WhatHasWeightsOfItsOwnIsExact) {
  EngineOptions options;
  options.cache_bytes = int64_t{64} << 20;
  const auto summary =
      SummarizeModel(*OpenCheckpoint(SourcePath("models/tales")).value(), options).value();
  const auto shift =
      std::find_if(summary.mechanisms.begin(), summary.mechanisms.end(),
                   [](const auto& m) { return m.attention.mechanism == Mechanism::kTaylorShift; });
  ASSERT_NE(shift, summary.mechanisms.end());
  EXPECT_TRUE(shift->exact);
}

TEST(SummarizeModelTest, CountsWeightsOfEightBits) {
  const TinyModel model({.config = TinyConfig()});
  EngineOptions options;
  options.cache_bytes = int64_t{8} << 20;
  const auto wide = SummarizeModel(*OpenCheckpoint(model.path()).value(), options).value();
  options.dtype = EngineOptions::Dtype::kInt8;
  const auto summary = SummarizeModel(*OpenCheckpoint(model.path()).value(), options).value();
  const auto engine = CreateEngine(OpenCheckpoint(model.path()).value(), options, nullptr).value();
  EXPECT_EQ(summary.dtype, "int8");
  EXPECT_EQ(summary.dtype, engine->Stats().dtype);
  EXPECT_LT(summary.weight_bytes, wide.weight_bytes);
  EXPECT_EQ(summary.weight_bytes, engine->Stats().weight_bytes);
}

TEST(SummarizeModelTest, LeavesOutWhatASlidingWindowRulesOut) {
  ModelConfig config = TinyConfig();
  config.architecture = "MistralForCausalLM";
  config.sliding_window = 16;
  const TinyModel model({.config = config});
  const auto summary = SummarizeModel(*OpenCheckpoint(model.path()).value(), {});
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(summary->mechanisms.size(), 5u);
  for (const MechanismMemory& m : summary->mechanisms) {
    EXPECT_EQ(m.attention.mechanism, Mechanism::kStandard);
  }
}

}  // namespace
}  // namespace lowkey
