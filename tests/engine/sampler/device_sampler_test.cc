#include "engine/sampler/device_sampler.h"

#include <cmath>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "tests/engine/sampler/every_seventh.h"
#include "tests/testing/emulated/emulated_device.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

constexpr int32_t kVocab = 300;
constexpr int64_t kStride = kVocab + 4;

std::vector<float> Logits(int64_t n_rows, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> x(n_rows * kStride);
  for (float& v : x) v = normal(rng);
  return x;
}

absl::Span<const float> Row(const std::vector<float>& logits, int64_t row) {
  return absl::MakeConstSpan(logits).subspan(row * kStride, kVocab);
}

void ExpectSame(const absl::StatusOr<SampledToken>& a, const absl::StatusOr<SampledToken>& b) {
  ASSERT_EQ(a.status(), b.status());
  if (!a.ok()) return;
  EXPECT_EQ(a->token, b->token);
  EXPECT_EQ(a->logprob, b->logprob);
  ASSERT_EQ(a->top_logprobs.size(), b->top_logprobs.size());
  for (size_t i = 0; i < a->top_logprobs.size(); ++i) {
    EXPECT_EQ(a->top_logprobs[i].token, b->top_logprobs[i].token);
    EXPECT_EQ(a->top_logprobs[i].logprob, b->top_logprobs[i].logprob);
  }
}

SamplingOptions OptionsOf(int i) {
  SamplingOptions o;
  o.seed = i;
  o.temperature = i % 4 == 0 ? 0.0f : 0.8f;
  if (i % 3 == 0) o.logprobs = i;
  if (i % 2 == 0) o.top_p = 0.9f;
  if (i % 5 == 1) o.repetition_penalty = 1.5f, o.frequency_penalty = 0.5f;
  if (i % 5 == 2) o.logit_bias = {{i, 6.0f}};
  return o;
}

class DeviceSamplerTest : public testing::Test {
 protected:
  DeviceSamplerTest() : sampler_(*DeviceSampler::Create(KernelTestDevice(), kVocab, 3)) {}

  std::vector<absl::StatusOr<SampledToken>> Sample(const std::vector<float>& logits) {
    const DeviceArray<float> there(logits);
    EXPECT_TRUE(sampler_->Queue(there.data(), kStride).ok());
    auto tokens = sampler_->Fetch().Wait();
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return *std::move(tokens);
  }

  std::unique_ptr<DeviceSampler> sampler_;
};

TEST_F(DeviceSamplerTest, StepsOfMoreRowsThanAreComputedAtOnceAreThoseOfTheHost) {
  constexpr int kRows = 8;
  std::vector<Sampler> host, there;
  for (int i = 0; i < kRows; ++i) {
    host.emplace_back(OptionsOf(i), i, kVocab, std::vector<int32_t>{1, 2, i});
    there.emplace_back(OptionsOf(i), i, kVocab, std::vector<int32_t>{1, 2, i});
  }
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> logits = Logits(kRows, step);
    for (int i = 0; i < kRows; ++i) sampler_->Add(there[i], kRows - 1 - i);
    const auto tokens = Sample(logits);
    ASSERT_EQ(tokens.size(), host.size());
    for (int i = 0; i < kRows; ++i) {
      ExpectSame(tokens[i], host[i].Sample(Row(logits, kRows - 1 - i)));
      ASSERT_TRUE(there[i].Accept(tokens[i]->token).ok());
    }
  }
}

// Each step is queued before the tokens of the one before it are counted, and in two parts.
TEST_F(DeviceSamplerTest, StepsMayBeQueuedBeforeTheLastOnesTokensAreRead) {
  constexpr int kRows = 8, kSteps = 12;
  std::vector<Sampler> host, there;
  for (int i = 0; i < kRows; ++i) {
    SamplingOptions o = OptionsOf(i);
    if (i >= 5) o.presence_penalty = 0.5f, o.temperature = 2.0f, o.top_k = 4;  // tokens come again
    if (i == 7) o.repetition_penalty = 0.5f, o.logit_bias = {{3, 5.0f}, {4, 5.0f}};
    host.emplace_back(o, i, kVocab, std::vector<int32_t>{1, 2, i});
    there.emplace_back(o, i, kVocab, std::vector<int32_t>{1, 2, i});
  }
  const std::vector<float> logits = Logits(kRows, 1);
  const DeviceArray<float> logits_there(logits);
  std::optional<QueuedTokens> pending;
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kRows; ++i) {
      const bool counts = pending.has_value();
      sampler_->Add(there[i], i, counts ? std::optional<int64_t>(i) : std::nullopt);
      if (i != 4) continue;
      ASSERT_TRUE(sampler_->Queue(logits_there.data(), kStride).ok());
    }
    ASSERT_TRUE(sampler_->Queue(logits_there.data(), kStride).ok());
    QueuedTokens queued = sampler_->Fetch();
    if (pending.has_value()) {
      const auto tokens = pending->Wait();
      ASSERT_EQ(tokens->size(), host.size());
      for (int i = 0; i < kRows; ++i) {
        ExpectSame((*tokens)[i], host[i].Sample(Row(logits, i)));
        ASSERT_TRUE(there[i].Accept((*tokens)[i]->token).ok());
      }
    }
    pending = std::move(queued);
  }
  EXPECT_TRUE(pending->Wait().ok());  // it reads the logits, which go now
}

TEST_F(DeviceSamplerTest, ChoicesDrawFromOneRow) {
  const std::vector<float> logits = Logits(1, 9);
  std::vector<Sampler> samplers;
  for (int choice = 0; choice < 5; ++choice)
    samplers.emplace_back(OptionsOf(1), choice, kVocab, std::vector<int32_t>{4});
  for (Sampler& sampler : samplers) sampler_->Add(sampler, 0);
  const auto tokens = Sample(logits);
  for (int i = 0; i < 5; ++i) ExpectSame(tokens[i], samplers[i].Sample(Row(logits, 0)));
}

// Rows with a constraint beside rows without, more than are computed at once; two of them come to
// their end, where no token may come.
TEST_F(DeviceSamplerTest, MasksAreThoseOfTheHost) {
  constexpr int kRows = 9, kSteps = 5;
  std::vector<Sampler> host, there;
  for (std::vector<Sampler>* samplers : {&host, &there}) {
    for (int i = 0; i < kRows; ++i) {
      samplers->emplace_back(OptionsOf(i), i, kVocab, std::vector<int32_t>{1, 2, i});
      if (i % 3 == 1) continue;
      const EverySeventh::Rules rules = {.vocab_size = kVocab, .n_before_end = i < 3 ? 4 : kSteps};
      samplers->back().Constrain(std::make_unique<EverySeventh>(rules));
    }
  }
  int n_refused = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> logits = Logits(kRows, step);
    for (int i = 0; i < kRows; ++i) sampler_->Add(there[i], i);
    const auto tokens = Sample(logits);
    for (int i = 0; i < kRows; ++i) {
      SCOPED_TRACE(absl::StrCat("step ", step, " row ", i));
      ExpectSame(tokens[i], host[i].Sample(Row(logits, i)));
      n_refused += !tokens[i].ok();
      if (!tokens[i].ok()) continue;
      EXPECT_TRUE(there[i].Accept(tokens[i]->token).ok());
    }
  }
  EXPECT_EQ(n_refused, 2);
  EXPECT_FALSE(there[3].Accept(0).ok()) << "a token that may not come";
}

TEST_F(DeviceSamplerTest, AMaskThatLeavesOnlyImpossibleTokensLeavesNothing) {
  std::vector<float> logits = Logits(1, 3);
  for (int32_t t = 0; t < kVocab; t += 7) logits[t] = -INFINITY;
  Sampler host(OptionsOf(1), 0, kVocab, {}), there(OptionsOf(1), 0, kVocab, {});
  for (Sampler* sampler : {&host, &there}) {
    sampler->Constrain(std::make_unique<EverySeventh>(EverySeventh::Rules{.vocab_size = kVocab}));
  }
  sampler_->Add(there, 0);
  const auto tokens = Sample(logits);
  EXPECT_EQ(tokens[0].status().code(), absl::StatusCode::kInternal);
  ExpectSame(tokens[0], host.Sample(Row(logits, 0)));
}

TEST_F(DeviceSamplerTest, GivenTokensAreScored) {
  std::vector<float> logits = Logits(2, 4);
  logits[kStride + 7] = NAN;
  sampler_->AddGiven(17, 4, 0);
  sampler_->AddGiven(17, 4, 1);
  const auto scores = Sample(logits);
  ExpectSame(scores[0],
             SampledToken{17, LogSoftmaxAt(Row(logits, 0), 17), TopLogprobs(Row(logits, 0), 4)});
  EXPECT_TRUE(std::isnan(*scores[1]->logprob));
  EXPECT_TRUE(scores[1]->top_logprobs.empty());
}

TEST_F(DeviceSamplerTest, BadLogitsAreTheirRowsErrorAndCountNothing) {
  std::vector<float> logits = Logits(2, 5);
  logits[7] = NAN;
  Sampler bad(OptionsOf(3), 0, kVocab, {}), good(OptionsOf(3), 0, kVocab, {});
  ASSERT_TRUE(bad.Accept(1).ok());
  sampler_->Add(bad, 0);
  sampler_->Add(good, 1);
  const auto tokens = Sample(logits);
  EXPECT_EQ(tokens[0].status().code(), absl::StatusCode::kInternal);
  ExpectSame(tokens[0], bad.Sample(Row(logits, 0)));
  ExpectSame(tokens[1], good.Sample(Row(logits, 1)));
}

TEST_F(DeviceSamplerTest, AStepWithoutRowsIsEmpty) { EXPECT_TRUE(Sample(Logits(1, 1)).empty()); }

TEST(DeviceSampler, AFaultOfTheDeviceIsTheErrorOfAll) {
  EmulatedDevice device;
  const auto sampler = *DeviceSampler::Create(device, kVocab, 3);
  const std::vector<float> logits = Logits(1, 6);
  Sampler one(OptionsOf(3), 0, kVocab, {});
  sampler->Add(one, 0);
  ASSERT_TRUE(sampler->Queue(logits.data(), kStride).ok());
  device.Break(absl::InternalError("emulated: fault"));
  EXPECT_EQ(sampler->Fetch().Wait().status().message(), "emulated: fault");
}

}  // namespace
}  // namespace lowkey
