// Requests that outgrow what was reserved for them give their cache up, and nothing shows it.
#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runtime/attention_variants.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

class EnginePreemptionTest : public EngineTest {
 protected:
  // So many short answers that long ones are not reserved for.
  void TeachShortAnswers() {
    for (int i = 0; i < 60; ++i) {
      Submit(Request(3, 200, i), [](int32_t, int32_t) { return SinkAnswer::kStop; })->Wait();
    }
  }

  static EngineRequest Long(const AttentionVariant& v, int i) {
    EngineRequest r = Request(20 + 13 * (i % 4), 150, i);
    r.attention = v.options;
    r.n = 1 + i % 2;
    r.sampling.temperature = 1;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.logprobs = 0;
    if (i % 3 == 0) r.prompt_logprobs = 0;
    return r;
  }

  bool CanEachRun(const AttentionVariant& v, int n_requests) {
    bool all = true;
    for (int i = 0; i < n_requests; ++i) {
      const auto id = engine_->Submit(
          Long(v, i), std::make_unique<CollectingSink>(std::make_shared<Collected>()));
      all &= id.ok();
      if (id.ok()) engine_->Cancel(*id);
    }
    return all;
  }

  int64_t n_preemptions_ = 0;
};

TEST_F(EnginePreemptionTest, EveryMechanismAnswersAsAlone) {
  constexpr int kRequests = 6;
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    EngineOptions options;
    options.max_batch_tokens = 100;
    Start(options);
    std::vector<std::shared_ptr<Collected>> alone;
    int64_t peak_bytes = 0;
    for (int i = 0; i < kRequests; ++i) {
      alone.push_back(Submit(Long(v, i)));
      const FinalEvent event = alone.back()->Wait();
      ASSERT_TRUE(event.status.ok()) << event.status;
      peak_bytes = std::max(peak_bytes, event.attention.peak_cache_bytes);
    }
    // Room for little more than the largest of them, which is bounded and not known.
    options.cache_bytes = 2 * peak_bytes;
    options.keeps_prefixes = false;
    Start(options);
    while (!CanEachRun(v, kRequests)) {
      options.cache_bytes += peak_bytes / 4;
      Start(options);
    }
    TeachShortAnswers();
    std::vector<std::shared_ptr<Collected>> together;
    for (int i = 0; i < kRequests; ++i) together.push_back(Submit(Long(v, i)));
    for (int i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      ASSERT_TRUE(together[i]->Wait().status.ok());
      EXPECT_EQ(together[i]->tokens, alone[i]->tokens);
      EXPECT_EQ(together[i]->logprobs, alone[i]->logprobs);
      ASSERT_EQ(together[i]->prompt_logprobs.size(), alone[i]->prompt_logprobs.size());
    }
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
    EXPECT_EQ(engine_->Stats().cache_bytes_prefix, 0);
    n_preemptions_ += engine_->Stats().n_preemptions;
  }
  EXPECT_GT(n_preemptions_, 10);
}

}  // namespace
}  // namespace lowkey
