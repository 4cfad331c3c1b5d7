#include "tools/eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/loader/checkpoint.h"
#include "engine/runtime/inspect.h"
#include "engine/sampler/logits.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

void Ignore(int64_t, int64_t) {}

TEST(CutWindowsTest, EveryTokenAfterTheFirstWindowsHeadIsScoredOnce) {
  PerplexityOptions options;
  options.context_tokens = 10;
  options.stride_tokens = 4;
  const auto windows = CutWindows(25, options);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 4u);
  int64_t scored_end = 6;
  for (const PerplexityWindow& w : *windows) {
    EXPECT_EQ(w.end - w.begin, 10);
    EXPECT_EQ(w.end - w.n_scored, scored_end);
    scored_end = w.end;
  }
}

TEST(CutWindowsTest, AFirstTokenTakesAPlaceAndLetsAllOthersBeScored) {
  PerplexityOptions options;
  options.context_tokens = 10;
  options.stride_tokens = 10;
  EXPECT_EQ(CutWindows(10, options)->at(0).n_scored, 9);
  options.first_token = 1;
  EXPECT_EQ(CutWindows(9, options)->at(0).n_scored, 9);
  EXPECT_EQ(CutWindows(9, options)->at(0).end, 9);
}

TEST(CutWindowsTest, RefusesWhatIsOutOfRangeAndSaysWhich) {
  const auto message = [](int64_t n_tokens, const PerplexityOptions& options) {
    return std::string(CutWindows(n_tokens, options).status().message());
  };
  PerplexityOptions options;
  EXPECT_THAT(message(2047, options), HasSubstr("text: 2047 tokens"));
  options.stride_tokens = 2049;
  EXPECT_THAT(message(5000, options), HasSubstr("stride: 2049, expected 1..2048"));
  options.stride_tokens = 0;
  EXPECT_THAT(message(5000, options), HasSubstr("stride: 0"));
  options.context_tokens = 1;
  EXPECT_THAT(message(5000, options), HasSubstr("context: 1"));
  options = {};
  options.max_windows = 0;
  EXPECT_THAT(message(5000, options), HasSubstr("windows: 0"));
}

AttentionOptions RankOne(AtpPrefill prefill) {
  AttentionOptions attention;
  attention.mechanism = Mechanism::kAtp;
  attention.atp.prefill = prefill;
  attention.atp.block_tokens = 64;
  attention.atp.window_blocks = 0;
  attention.atp.rank = RankFixed{1};
  return attention;
}

class PerplexityTest : public ::testing::Test {
 protected:
  PerplexityTest() {
    EngineOptions options;
    options.dtype = EngineOptions::Dtype::kFloat32;
    options.n_threads = 1;
    engine_ = *CreateEngine(OpenCheckpoint(model_.path()).value(), options, nullptr);
    for (int i = 0; i < 200; ++i) tokens_.push_back((i * 37 + 11) % engine_->config().vocab_size);
  }

  // The same sum from the logits of each window.
  double Expected(const PerplexityOptions& options) const {
    double sum = 0;
    const std::vector<PerplexityWindow> windows = CutWindows(200, options).value();
    for (const PerplexityWindow& w : windows) {
      std::vector<int32_t> ids;
      if (options.first_token.has_value()) ids.push_back(*options.first_token);
      ids.insert(ids.end(), tokens_.begin() + w.begin, tokens_.begin() + w.end);
      LogitsOptions logits_options;
      logits_options.engine.dtype = EngineOptions::Dtype::kFloat32;
      const auto logits =
          *ComputeLogits(OpenCheckpoint(model_.path()).value(), ids, logits_options);
      const size_t vocab = static_cast<size_t>(engine_->config().vocab_size);
      for (size_t i = ids.size() - static_cast<size_t>(w.n_scored); i < ids.size(); ++i) {
        sum -= LogSoftmaxAt(absl::MakeConstSpan(logits).subspan((i - 1) * vocab, vocab), ids[i]);
      }
    }
    return sum;
  }

  TinyModel model_{{.config = TinyConfig()}};
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> tokens_;
};

TEST_F(PerplexityTest, EqualsTheLogitsOfEachWindow) {
  PerplexityOptions options;
  options.context_tokens = 80;
  options.stride_tokens = 30;
  for (const std::optional<int32_t> first : {std::optional<int32_t>(), std::optional<int32_t>(1)}) {
    options.first_token = first;
    std::vector<int64_t> seen;
    const auto result = MeasurePerplexity(*engine_, tokens_, options,
                                          [&](int64_t done, int64_t) { seen.push_back(done); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->n_windows, 5);
    EXPECT_EQ(result->n_scored, 150);
    EXPECT_NEAR(result->negative_logprob, Expected(options), 1e-3);
    EXPECT_DOUBLE_EQ(result->perplexity(), std::exp(result->negative_logprob / 150));
    EXPECT_EQ(result->cost.cache_bytes, result->cost.standard_bytes);
    EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  }
}

TEST_F(PerplexityTest, CompressedTextIsMeasuredThroughItsPrincipalKeys) {
  PerplexityOptions options;
  options.context_tokens = 200;
  options.stride_tokens = 100;
  const auto exact = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  options.reading.attention = RankOne(AtpPrefill::kCompressed);
  const auto low = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  ASSERT_TRUE(low.ok()) << low.status();
  EXPECT_NE(low->negative_logprob, exact->negative_logprob);
  EXPECT_EQ(low->cost.rank, 1);
  EXPECT_LT(low->cost.cache_bytes, low->cost.standard_bytes);
}

TEST_F(PerplexityTest, GeneratedTokensAreScoredAsThePromptsAre) {
  PerplexityOptions options;
  options.context_tokens = 80;
  options.stride_tokens = 30;
  options.first_token = 1;
  options.reading.as_generated = true;
  const auto result = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_scored, 150);
  EXPECT_NEAR(result->negative_logprob, Expected(options), 1e-3);
}

TEST_F(PerplexityTest, OnlyGeneratedTokensReadBlocksBehindAnExactPrompt) {
  PerplexityOptions options;
  options.context_tokens = 200;
  options.stride_tokens = 50;
  const auto exact = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  options.reading.attention = RankOne(AtpPrefill::kExact);
  const auto prompt = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  options.reading.as_generated = true;
  const auto generated = MeasurePerplexity(*engine_, tokens_, options, Ignore);
  ASSERT_TRUE(generated.ok()) << generated.status();
  EXPECT_EQ(prompt->negative_logprob, exact->negative_logprob);
  EXPECT_GT(std::abs(generated->negative_logprob - exact->negative_logprob), 1e-3);
}

TEST_F(PerplexityTest, AWindowOverTheContextIsTheEnginesError) {
  PerplexityOptions options;
  options.context_tokens = 200;
  options.stride_tokens = 100;
  EngineOptions short_context;
  short_context.context_tokens = 150;
  const auto engine = CreateEngine(OpenCheckpoint(model_.path()).value(), short_context, nullptr);
  EXPECT_EQ(MeasurePerplexity(**engine, tokens_, options, Ignore).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace lowkey
