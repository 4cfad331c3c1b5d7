// Models whose taylorshift weights have queries and keys narrower than values, and a window.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/loader/safetensors.h"
#include "engine/runtime/inspect.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

constexpr TaylorForm kForms[] = {TaylorForm::kDirect, TaylorForm::kRecurrent, TaylorForm::kAuto};

class EngineNarrowScoresTest : public EngineTest {
 protected:
  EngineNarrowScoresTest() {
    RandomBundleOptions bundle{TinyConfig(), {}, 1};
    bundle.mechanisms = {{.mechanism = Mechanism::kTaylorShift,
                          .n_kv_heads = 4,
                          .score_dim = 4,
                          .window_tokens = 64,
                          .variant = TaylorVariant::kNormalized}};
    EXPECT_TRUE(WriteRandomBundle(model_.path(), bundle).ok());
  }

  static EngineRequest Narrow(int n_prompt, int n_new, TaylorForm form, int variant = 0) {
    EngineRequest r = TaylorShiftRequest(n_prompt, n_new, form, variant);
    r.sampling.temperature = 1;
    r.sampling.seed = static_cast<uint64_t>(variant);
    r.sampling.logprobs = 0;
    return r;
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    bool operator==(const Outcome&) const = default;
  };
  Outcome Run(const EngineRequest& request) {
    const auto got = Submit(request);
    const FinalEvent event = got->Wait();
    EXPECT_TRUE(event.status.ok()) << event.status;
    n_cached_ += event.n_cached_tokens;
    peak_bytes_ = std::max(peak_bytes_, event.attention.peak_cache_bytes);
    return {got->tokens[0], got->logprobs[0]};
  }

  int64_t n_cached_ = 0, peak_bytes_ = 0;
};

TEST_F(EngineNarrowScoresTest, StepsOfAnySizeGiveTheSameAnswer) {
  for (const TaylorForm form : kForms) {
    SCOPED_TRACE(NameOf(form));
    std::vector<Outcome> outcomes;
    for (const int32_t max_batch_tokens : {512, 100, 7}) {
      EngineOptions options;
      options.max_batch_tokens = max_batch_tokens;
      Start(options);
      outcomes.push_back(Run(Narrow(150, 100, form)));
    }
    EXPECT_EQ(outcomes[1], outcomes[0]);
    EXPECT_EQ(outcomes[2], outcomes[0]);
  }
}

TEST_F(EngineNarrowScoresTest, PrefixesAreReused) {
  for (const TaylorForm form : kForms) {
    SCOPED_TRACE(NameOf(form));
    EngineOptions options;
    options.keeps_prefixes = false;
    Start(options);
    const EngineRequest request = Narrow(200, 10, form);
    const Outcome expected = Run(request);
    EXPECT_EQ(n_cached_, 0);
    options.keeps_prefixes = true;
    Start(options);
    EXPECT_EQ(Run(request), expected);
    EXPECT_EQ(Run(request), expected);
    EXPECT_GE(n_cached_, 128);
    n_cached_ = 0;
  }
}

TEST_F(EngineNarrowScoresTest, PreemptedRequestsAnswerAsAlone) {
  constexpr int kRequests = 6;
  for (const TaylorForm form : kForms) {
    SCOPED_TRACE(NameOf(form));
    EngineOptions options;
    options.max_batch_tokens = 100;
    Start(options);
    std::vector<Outcome> alone;
    for (int i = 0; i < kRequests; ++i) alone.push_back(Run(Narrow(20 + 13 * i, 150, form, i)));
    options.cache_bytes = 2 * peak_bytes_;
    options.keeps_prefixes = false;
    Start(options);
    for (int i = 0; i < 60; ++i) {  // so many short answers that long ones are not reserved for
      Submit(Request(3, 200, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
    }
    std::vector<std::shared_ptr<Collected>> together;
    for (int i = 0; i < kRequests; ++i) {
      together.push_back(Submit(Narrow(20 + 13 * i, 150, form, i)));
    }
    for (int i = 0; i < kRequests; ++i) {
      ASSERT_TRUE(together[i]->Wait().status.ok());
      EXPECT_EQ(together[i]->tokens[0], alone[i].tokens) << i;
      EXPECT_EQ(together[i]->logprobs[0], alone[i].logprobs) << i;
    }
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
    EXPECT_GT(engine_->Stats().n_preemptions, 0);
    peak_bytes_ = 0;
  }
}

TEST_F(EngineNarrowScoresTest, OnlyTheTrainedVariantIsServed) {
  Start();
  EngineRequest request = Narrow(20, 5, TaylorForm::kAuto);
  const Outcome expected = Run(request);
  request.attention.taylorshift.variant = TaylorVariant::kNormalized;
  EXPECT_EQ(Run(request), expected);
  request.attention.taylorshift.variant = TaylorVariant::kPlain;
  EXPECT_EQ(Refused(request).code(), absl::StatusCode::kFailedPrecondition);
}

// Tensors of a bundle's file, by name.
using Tensors = std::vector<std::pair<std::string, std::vector<float>>>;

void WriteBundle(const TinyModel& model, const Tensors& tensors, const std::string& fields) {
  const int64_t hidden = TinyConfig().hidden_dim;
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, values] : tensors) {
    TensorView view;
    view.shape = {static_cast<int64_t>(values.size()) / hidden, hidden};
    view.data = reinterpret_cast<const std::byte*>(values.data());
    views.emplace_back(name, view);
  }
  ASSERT_TRUE(WriteSafetensors(model.File("w.safetensors"), views).ok());
  WriteFileOrDie(model.File("lowkey.json"),
                 absl::StrCat(R"({"format": 1, "mechanisms": [{"name": "taylorshift", )",
                              R"("weights": "w.safetensors", )", fields, "}]}"));
}

// Heads of 8 in which only the pairs 0 and 2 of four are not zero score as heads of 4 do: theta^(-2
// (2 i) / 8) = theta^(-2 i / 4). Scores over sqrt(4) are those over sqrt(8) of queries sqrt(2)
// times as long.
TEST_F(EngineNarrowScoresTest, ZerosInUnusedPairsMakeAWideModelTheSame) {
  const ModelConfig config = TinyConfig();
  const int64_t hidden = config.hidden_dim, e = 4, d = config.head_dim;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 250; ++i) prompt.push_back((i * 31 + 5) % 96);
  for (const std::string variant : {"normalized", "plain"}) {
    Tensors narrow, wide;
    for (int64_t layer = 0; layer < config.n_layers; ++layer) {
      for (const bool is_query : {true, false}) {
        const int64_t n_heads = is_query ? config.n_heads : config.n_kv_heads;
        const std::string name = absl::StrCat("layers.", layer, is_query ? ".wq" : ".wk");
        std::vector<float>& small = narrow.emplace_back(name, n_heads * e * hidden).second;
        std::vector<float>& large = wide.emplace_back(name, n_heads * d * hidden).second;
        const float factor = is_query && variant == "plain" ? std::sqrt(2.0f) : 1.0f;
        for (int64_t row = 0; row < n_heads * e; ++row) {
          const int64_t j = row % e, pair = j % (e / 2), half = j / (e / 2);
          const int64_t to = row / e * d + half * d / 2 + 2 * pair;
          for (int64_t c = 0; c < hidden; ++c) {
            small[row * hidden + c] = normal(rng);
            large[to * hidden + c] = factor * small[row * hidden + c];
          }
        }
      }
    }
    for (const char* window : {"0", "64"}) {
      const std::string fields =
          absl::StrCat(R"("variant": ")", variant, R"(", "window_tokens": )", window);
      std::vector<std::vector<float>> logits;
      for (const bool is_narrow : {true, false}) {
        WriteBundle(model_, is_narrow ? narrow : wide,
                    fields + (is_narrow ? R"(, "score_dim": 4)" : ""));
        for (const TaylorForm form : kForms) {
          LogitsOptions options;
          options.attention.mechanism = Mechanism::kTaylorShift;
          options.attention.taylorshift.form = form;
          options.chunk_tokens = 90;
          options.engine.n_threads = 1;
          options.engine.device = NewTestDevice();
          const auto got = ComputeLogits(OpenCheckpoint(model_.path()).value(), prompt, options);
          ASSERT_TRUE(got.ok()) << got.status();
          logits.push_back(*got);
        }
      }
      for (size_t i = 1; i < logits.size(); ++i) {
        double worst = 0;
        for (size_t j = 0; j < logits[0].size(); ++j) {
          worst = std::max<double>(worst, std::fabs(logits[i][j] - logits[0][j]));
        }
        EXPECT_LE(worst, 2e-4) << variant << ", window " << window << ", run " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
