// Tests the kernels of sampling/*.cu on the emulated grid, or on the device that LOWKEY_TEST_DEVICE
// names.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/kernels.h"
#include "engine/sampler/sampler.h"
#include "tests/engine/sampler/every_seventh.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

using emulated::ThreadOrder;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// Returns logits that are hard in some way.
std::vector<float> Logits(int32_t vocab, std::minstd_rand& random) {
  const float scales[] = {0.0f, 0.01f, 1.0f, 3.0f, 8.0f, 100.0f, 1e37f};
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const float scale = scales[random() % 7];
  const bool has_ties = random() % 3 == 0, has_impossible = random() % 3 == 0;
  std::vector<float> x(vocab);
  for (float& v : x) {
    v = normal(random) * scale;
    if (has_ties) v = std::round(v);
    if (has_impossible && random() % 2 == 0) v = -kInf;
  }
  x[random() % vocab] = random() % 2 == 0 ? 5.0f : -0.0f;
  return x;
}

float Pick(std::minstd_rand& random, std::initializer_list<float> values) {
  return values.begin()[random() % values.size()];
}

SamplingOptions Options(int32_t vocab, std::minstd_rand& random) {
  SamplingOptions o;
  o.temperature = Pick(random, {0.0f, 0.7f, 1.0f, 1.0f, 2.0f, 1e-3f});
  const int32_t top_ks[] = {0, 0, 1, 2, 40, vocab / 2, vocab - 1, vocab};
  o.top_k = std::min(top_ks[random() % 8], vocab);
  o.top_p = Pick(random, {1.0f, 1.0f, 0.95f, 0.5f, 1e-9f, 0.99999994f});
  o.min_p = Pick(random, {0.0f, 0.0f, 0.0f, 0.05f, 1e-20f, 0.999f});
  o.repetition_penalty = Pick(random, {1.0f, 1.0f, 1.3f, 0.5f, 1e-38f});
  o.presence_penalty = Pick(random, {0.0f, 0.0f, 1.0f, -2.0f});
  o.frequency_penalty = Pick(random, {0.0f, 0.0f, 0.25f});
  if (random() % 3 == 0) o.logit_bias.emplace_back(random() % vocab, Pick(random, {4.0f, -100.0f}));
  o.seed = random();
  if (random() % 2 == 0) o.logprobs = static_cast<int32_t>(random() % 21);
  return o;
}

// Rows whose tokens samplers are to draw on the device.
class Step {
 public:
  Step(int64_t vocab, int64_t ld_logits) : vocab_(vocab), ld_logits_(ld_logits) {}

  // A further row of logits.
  int64_t AddLogits(const std::vector<float>& logits) {
    logits_.resize(logits_.size() + ld_logits_, std::nanf(""));
    std::copy(logits.begin(), logits.end(), logits_.end() - ld_logits_);
    return static_cast<int64_t>(logits_.size()) / ld_logits_ - 1;
  }

  void AddRow(Sampler& sampler, int64_t logits_row) {
    const SamplingOptions& o = sampler.options();
    SampleRow row;
    row.logits_row = logits_row;
    row.first_adjustment = static_cast<int64_t>(adjustments_.size());
    row.uniform = sampler.uniform(sampler.n_sampled());
    row.n_adjustments = static_cast<int32_t>(sampler.adjustments().size());
    row.kind = o.temperature == 0.0f ? SampleKind::kMostLikely : SampleKind::kDraw;
    row.temperature = o.temperature;
    row.top_k = o.top_k;
    row.top_p = o.top_p;
    row.min_p = o.min_p;
    row.repetition_penalty = o.repetition_penalty;
    row.report = o.logprobs.has_value() ? SampleReport::kLogprobs : SampleReport::kToken;
    row.n_top = o.logprobs.value_or(0);
    if (sampler.constraint() != nullptr) {
      const auto mask = *sampler.constraint()->Mask();
      row.first_mask_word = static_cast<int64_t>(mask_words_.size());
      mask_words_.insert(mask_words_.end(), mask.begin(), mask.end());
    }
    Add(row);
    adjustments_.insert(adjustments_.end(), sampler.adjustments().begin(),
                        sampler.adjustments().end());
  }
  void Add(const SampleRow& row) {
    rows_.push_back(row);
    n_draws_ += row.kind == SampleKind::kDraw ? 1 : 0;
    n_masked_ += row.first_mask_word >= 0 ? 1 : 0;
    n_reports_ += row.report == SampleReport::kLogprobs ? 1 : 0;
    most_adjustments_ = std::max<int64_t>(most_adjustments_, row.n_adjustments);
  }

  std::vector<SampleResult> Run(ThreadOrder order = ThreadOrder::kForward) const {
    const auto n_rows = static_cast<int64_t>(rows_.size());
    // Scratch holds NaN at first: no kernel may read what none has written.
    DeviceArray<double> scratch(
        std::vector<double>((SamplingScratchBytes(n_rows, vocab_) + 7) / 8, NAN));
    const DeviceArray<float> logits(logits_);
    const DeviceArray<SampleRow> rows(rows_);
    std::vector<LogitAdjustment> some = adjustments_;
    some.resize(some.size() + 1);  // there is no array of none
    const DeviceArray<LogitAdjustment> adjustments(some);
    std::vector<uint64_t> words = mask_words_;
    words.resize(words.size() + 1);
    const DeviceArray<uint64_t> mask_words(words);
    DeviceArray<SampleResult> results(n_rows);
    emulated::SetThreadOrder(order);
    Device& device = KernelTestDevice();
    device.kernels().sample(
        device, {logits.data(), ld_logits_, vocab_, rows.data(), n_rows, adjustments.data(),
                 mask_words.data(), n_draws_, n_reports_, n_masked_, most_adjustments_,
                 reinterpret_cast<std::byte*>(scratch.data()), results.data()});
    std::vector<SampleResult> read = results.Read();
    emulated::SetThreadOrder(ThreadOrder::kForward);
    return read;
  }

 private:
  int64_t vocab_, ld_logits_;
  std::vector<float> logits_;
  std::vector<SampleRow> rows_;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<uint64_t> mask_words_;
  int64_t n_draws_ = 0, n_reports_ = 0, n_masked_ = 0, most_adjustments_ = 0;
};

void ExpectSame(const SampleResult& result, const absl::StatusOr<SampledToken>& expected) {
  ASSERT_EQ(result.outcome == SampleOutcome::kDrawn, expected.ok()) << expected.status();
  if (!expected.ok()) return;
  ASSERT_EQ(result.token, expected->token);
  if (!expected->logprob.has_value()) return;
  const double log_sum = LogOfSum(result.max, result.exp_sum);
  EXPECT_EQ(LogprobOf(result.token, result.logit, log_sum).logprob, *expected->logprob);
  for (size_t i = 0; i < expected->top_logprobs.size(); ++i) {
    const TopLogit& top = result.top[i];
    EXPECT_EQ(top.token, expected->top_logprobs[i].token) << i;
    EXPECT_EQ(LogprobOf(top.token, top.logit, log_sum).logprob, expected->top_logprobs[i].logprob);
  }
}

void ExpectSame(const std::vector<SampleResult>& a, const std::vector<SampleResult>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].outcome, b[i].outcome);
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(a[i].exp_sum, b[i].exp_sum);
    for (int j = 0; j < kMaxTopLogits; ++j) EXPECT_EQ(a[i].top[j].token, b[i].top[j].token);
  }
}

class CudaSamplingTest : public testing::TestWithParam<int32_t> {};

TEST_P(CudaSamplingTest, DrawsWhatTheHostDraws) {
  const int32_t vocab = GetParam();
  std::minstd_rand random(vocab);
  for (int repeat = 0; repeat < 2; ++repeat) {
    Step step(vocab, vocab + 3);
    std::vector<absl::StatusOr<SampledToken>> expected;
    for (int i = 0; i < 8; ++i) {
      const std::vector<float> logits = Logits(vocab, random);
      const SamplingOptions options = Options(vocab, random);
      ASSERT_TRUE(ValidateSamplingOptions(options, vocab).ok());
      std::vector<int32_t> prompt(5);
      for (int32_t& token : prompt) token = static_cast<int32_t>(random() % vocab);
      Sampler sampler(options, i, vocab, prompt);
      if (vocab >= 7 && i % 2 == 1) {
        sampler.Constrain(std::make_unique<EverySeventh>(EverySeventh::Rules{.vocab_size = vocab}));
      }
      for (unsigned j = 0; j < random() % 4; ++j) {
        // A masked sampler counts what it may count.
        const bool counts = sampler.Accept(prompt[j] / 2).ok();
        EXPECT_TRUE(counts || sampler.constraint() != nullptr);
      }
      step.AddRow(sampler, step.AddLogits(logits));
      expected.push_back(sampler.Sample(logits));
    }
    const std::vector<SampleResult> results = step.Run();
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "repeat " << repeat << " row " << i);
      ExpectSame(results[i], expected[i]);
    }
    if (repeat > 0) continue;
    ExpectSame(results, step.Run(ThreadOrder::kBackward));
    ExpectSame(results, step.Run(ThreadOrder::kShuffled));
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, CudaSamplingTest,
                         testing::Values(1, 2, 7, 33, 256, 257, 1000, 5003));

// The row combines everything, over the largest vocabulary, in many draws.
void CompareLarge(int32_t vocab, float scale, int n_draws) {
  std::minstd_rand random(3);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = std::round(normal(random) * 64.0f) / 64.0f;
  Step step(vocab, vocab);
  const int64_t row = step.AddLogits(logits);
  std::vector<absl::StatusOr<SampledToken>> expected;
  for (int i = 0; i < n_draws; ++i) {
    SamplingOptions o;
    o.temperature = 1.0f;
    o.seed = i;
    if (i % 4 == 1) o.top_p = 0.9f;
    if (i % 4 == 2) o.top_k = 50;
    if (i % 8 == 3) o.top_k = vocab / 3, o.top_p = 0.97f;
    if (i % 8 == 4) o.logprobs = 20;
    Sampler sampler(o, 0, vocab, {});
    step.AddRow(sampler, row);
    expected.push_back(sampler.Sample(logits));
  }
  const std::vector<SampleResult> results = step.Run();
  for (int i = 0; i < n_draws; ++i) {
    SCOPED_TRACE(i);
    ExpectSame(results[i], expected[i]);
  }
}

TEST(CudaSampling, LargeVocabulariesPeakedAndFlat) {
  CompareLarge(128256, 3.0f, 8);
  CompareLarge(128256, 0.5f, 8);
}

TEST(CudaSampling, TheLargestVocabulary) { CompareLarge(1 << 20, 1.0f, 4); }

TEST(CudaSampling, TiesAcrossBlocksKeepTheLowestIds) {
  const int32_t vocab = 3000;
  std::vector<float> logits(vocab, -2.0f);
  for (int32_t i = 100; i < vocab; i += 3) logits[i] = 1.0f;
  logits[2999] = 3.0f;
  Step step(vocab, vocab);
  const int64_t row = step.AddLogits(logits);
  std::vector<absl::StatusOr<SampledToken>> expected;
  for (int i = 0; i < 40; ++i) {
    SamplingOptions o;
    o.temperature = 1.0f;
    o.seed = i;
    if (i % 3 != 0) o.top_k = 400 + 3 * i;
    if (i % 3 != 1) o.top_p = 0.31f;
    Sampler sampler(o, 0, vocab, {});
    step.AddRow(sampler, row);
    expected.push_back(sampler.Sample(logits));
  }
  const std::vector<SampleResult> results = step.Run();
  for (size_t i = 0; i < results.size(); ++i) ExpectSame(results[i], expected[i]);
}

TEST(CudaSampling, ASequenceOfDrawsCountsWhatItDrew) {
  std::minstd_rand random(11);
  SamplingOptions o;
  o.temperature = 0.9f;
  o.top_p = 0.9f;
  o.repetition_penalty = 1.2f;
  o.presence_penalty = 0.5f;
  o.frequency_penalty = 0.3f;
  o.logit_bias = {{3, 2.0f}, {4, -1.0f}};
  Sampler host(o, 1, 300, {{1, 2, 3}}), device(o, 1, 300, {{1, 2, 3}});
  const std::vector<float> logits = Logits(300, random);
  for (int i = 0; i < 25; ++i) {
    Step step(300, 300);
    step.AddRow(device, step.AddLogits(logits));
    const SampleResult result = step.Run()[0];
    ASSERT_EQ(result.token, host.Sample(logits)->token) << i;
    ASSERT_TRUE(device.Accept(result.token).ok());
  }
  EXPECT_EQ(device.n_sampled(), 25);
}

TEST(CudaSampling, BadLogitsMarkTheirRowAlone) {
  const std::vector<float> good = {1.0f, 2.0f, 3.0f};
  const std::vector<std::vector<float>> bad = {{1.0f, NAN, 0.0f},
                                               {1.0f, -NAN, 0.0f},
                                               {kInf, 0.0f, 0.0f},
                                               {-kInf, -kInf, -kInf},
                                               {NAN, kInf, -kInf}};
  Step step(3, 3);
  for (float temperature : {0.0f, 1.0f}) {
    SamplingOptions o;
    o.temperature = temperature;
    o.top_p = 0.5f;
    o.logprobs = 2;
    Sampler plain(o, 0, 3, {});
    o.logit_bias = {{0, 100.0f}, {1, 1.0f}};
    Sampler biased(o, 0, 3, {});
    for (const std::vector<float>& logits : bad) {
      step.AddRow(plain, step.AddLogits(logits));
      step.AddRow(biased, step.AddLogits(logits));
      step.AddRow(plain, step.AddLogits(good));
    }
  }
  const std::vector<SampleResult> results = step.Run();
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i % 3 == 2 ? SampleOutcome::kDrawn : SampleOutcome::kBadLogits);
    if (i % 3 == 2) {
      EXPECT_EQ(results[i].token, 2);
    }
  }
}

TEST(CudaSampling, PenaltiesMayLeaveNothingAndMayOverflow) {
  SamplingOptions o;
  o.repetition_penalty = 2.0f;
  Sampler none(o, 0, 2, {{0, 1}});
  o.repetition_penalty = 1e-38f;
  Sampler both(o, 0, 2, std::vector<int32_t>{1});
  Step step(2, 2);
  step.AddRow(none, step.AddLogits({-kLargest, -kLargest}));
  step.AddRow(both, step.AddLogits({kLargest / 2, 3e30f}));
  const std::vector<SampleResult> results = step.Run();
  EXPECT_EQ(results[0].outcome, SampleOutcome::kNothingLeft);
  EXPECT_EQ(results[1].token, 1);
}

TEST(CudaSampling, AGivenTokenIsOnlyReported) {
  std::minstd_rand random(5);
  const std::vector<float> logits = Logits(700, random);
  Step step(700, 700);
  SampleRow row;
  row.logits_row = step.AddLogits(logits);
  row.kind = SampleKind::kGiven;
  row.token = 123;
  row.report = SampleReport::kLogprobs;
  row.n_top = 7;
  step.Add(row);
  row.logits_row = step.AddLogits(std::vector<float>(700, NAN));
  step.Add(row);
  const std::vector<SampleResult> results = step.Run();
  SampledToken expected{123, LogSoftmaxAt(logits, 123), TopLogprobs(logits, 7)};
  ExpectSame(results[0], expected);
  EXPECT_EQ(results[1].outcome, SampleOutcome::kBadLogits);
}

}  // namespace
}  // namespace lowkey
