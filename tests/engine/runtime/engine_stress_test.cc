// Ten thousand requests of every mechanism in a quarter of the cache that they would take at once,
// some cancelled, many shorter than they might be: nothing is lost, nothing is changed by company,
// by giving its cache up or by finding a prefix there, nobody starves, nothing stays in the cache.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

constexpr int kVariants = 120;
constexpr int kRequests = 10'000;
constexpr size_t kInFlight = 60;

// Requests that differ in length, mechanism and sampling.
EngineRequest Variant(int i) {
  constexpr Mechanism kMechanisms[] = {
      Mechanism::kStandard,  Mechanism::kAtp,   Mechanism::kTaylorShift, Mechanism::kEfficient,
      Mechanism::kOptimised, Mechanism::kSuper, Mechanism::kLasso,       Mechanism::kAtp};
  EngineRequest r = AtpRequest(1 + i * 29 % 150, 1 + i * 7 % 30, i);
  r.attention.mechanism = kMechanisms[i % 8];
  if (i % 16 == 7) r.attention.atp.prefill = AtpPrefill::kCompressed;
  if (i % 16 == 1) r.attention.atp.refine_tokens = 8;
  if (i % 16 == 9) r.attention.atp.readout = AtpReadout::kLinear, r.attention.atp.merge = true;
  if (i % 32 == 1) r.attention.atp.kept_storage = AtpStorage::kInt8;
  if (i % 16 == 8) r.attention.standard.storage = CacheStorage::kInt4;
  if (r.attention.mechanism == Mechanism::kLasso) r.prompt.resize(1 + r.prompt.size() / 8);
  if (i % 3 == 1) {
    r.sampling.temperature = 0.9f;
    r.sampling.seed = static_cast<uint64_t>(i);
  }
  return r;
}

// Most answers end early, so that the long ones are not reserved for.
std::function<SinkAnswer(int32_t, int32_t)> EndingEarly(int variant) {
  if (variant % 4 == 0) return {};
  return [](int32_t, int32_t) { return SinkAnswer::kStop; };
}

TEST_F(EngineTest, TenThousandMixedRequestsEqualThemselvesAlone) {
  EngineOptions options;
  options.max_batch_tokens = 200;
  Start(options);
  std::vector<std::vector<int32_t>> alone;
  int64_t n_bytes = 0;
  for (int i = 0; i < kVariants; ++i) {
    const auto got = Submit(Variant(i), EndingEarly(i));
    const FinalEvent event = got->Wait();
    EXPECT_TRUE(event.status.ok());
    alone.push_back(got->tokens[0]);
    n_bytes += event.attention.peak_cache_bytes;
  }
  options.cache_bytes = n_bytes / kVariants * static_cast<int64_t>(kInFlight) / 4;
  Start(options);
  struct Running {
    int variant;
    std::shared_ptr<Collected> got;
  };
  std::deque<Running> running;
  std::mt19937 rng(1);
  int n_whole = 0, n_cut = 0;
  const auto finish_one = [&] {
    const Running oldest = running.front();
    running.pop_front();
    const FinalEvent event = oldest.got->Wait();
    const std::vector<int32_t>& want = alone[oldest.variant];
    const std::vector<int32_t> tokens =
        oldest.got->tokens.empty() ? std::vector<int32_t>() : oldest.got->tokens[0];
    if (event.status.ok()) {
      ++n_whole;
      ASSERT_EQ(tokens, want) << "variant " << oldest.variant;
    } else {
      ++n_cut;
      ASSERT_EQ(event.status.code(), absl::StatusCode::kCancelled);
      ASSERT_LE(tokens.size(), want.size());
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), want.begin()));
    }
  };
  // How often the engine finds the cache too small depends on when requests arrive: go on until it
  // did.
  const auto is_enough = [&](int n) {
    return n >= kRequests && (engine_->Stats().n_preemptions > 0 || n >= 4 * kRequests);
  };
  int n_requests = 0;
  for (; !is_enough(n_requests); ++n_requests) {
    const int variant = static_cast<int>(rng() % kVariants);
    running.push_back({variant, Submit(Variant(variant), EndingEarly(variant))});
    if (rng() % 8 == 0) engine_->Cancel(last_id_ - rng() % 20);
    if (running.size() >= kInFlight) finish_one();
    if (HasFatalFailure()) return;
  }
  while (!running.empty()) {
    finish_one();
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(n_whole + n_cut, n_requests);
  EXPECT_GT(n_whole, n_requests / 2);
  EXPECT_GT(n_cut, 0);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  EXPECT_GT(engine_->Stats().n_preemptions, 0);
  EXPECT_GT(engine_->Stats().n_prefix_tokens, 0);
}

}  // namespace
}  // namespace lowkey
