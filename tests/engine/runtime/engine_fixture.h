#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_ENGINE_FIXTURE_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_ENGINE_FIXTURE_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/random_bundle.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/calibration/find_codes.h"
#include "engine/runtime/engine.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/collecting_sink.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {

// An engine over a tiny model that has weights for every mechanism.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    RandomBundleOptions bundle{TinyConfig(), {}, 1};
    bundle.mechanisms = {
        {.mechanism = Mechanism::kEfficient, .n_heads = 2, .perplexity_ratio = 1.01},
        {.mechanism = Mechanism::kOptimised, .n_kv_heads = 2},
        {.mechanism = Mechanism::kSuper, .alignment_tokens = 230},
        {.mechanism = Mechanism::kLasso, .lasso = {.iterations = 2}},
        {.mechanism = Mechanism::kTaylorShift, .lora_rank = 2}};
    EXPECT_TRUE(WriteRandomBundle(model_.path(), bundle).ok());
  }

  void Start(EngineOptions options = {}) {
    options.n_threads = 2;
    if (options.device == nullptr) options.device = NewTestDevice();
    if (options.cache_bytes == 0) options.cache_bytes = 32 << 20;
    const auto checkpoint = OpenCheckpoint(model_.path()).value();
    if (options.codes == nullptr) options.codes = CodesOf(checkpoint);
    auto engine = CreateEngine(checkpoint, options, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  std::shared_ptr<Collected> Submit(const EngineRequest& request,
                                    std::function<SinkAnswer(int32_t, int32_t)> on_token = {}) {
    auto to = std::make_shared<Collected>();
    to->on_token = std::move(on_token);
    auto id = engine_->Submit(request, std::make_unique<CollectingSink>(to));
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) {
      last_id_ = *id;
    } else {
      FinalEvent refused;
      refused.status = id.status();
      CollectingSink(to).OnDone(refused);
    }
    return to;
  }

  // Returns the calibration of the model, which is the same in every test.
  static std::shared_ptr<const PrincipalCodes> CodesOf(
      const std::shared_ptr<const Checkpoint>& checkpoint) {
    static const auto* const codes = new std::shared_ptr<const PrincipalCodes>([&] {
      std::vector<int32_t> text;
      for (int i = 0; i < 200; ++i) text.push_back((i * i * 7 + i) % 96);
      return std::make_shared<const PrincipalCodes>(
          FindPrincipalCodes(checkpoint, {&text, 1}, {}, {}).value());
    }());
    return *codes;
  }

  // Returns the bytes of one page: its width depends on the kernels of the machine.
  int64_t PageBytesOfTheEngine() {
    Start();
    EngineRequest request;
    request.prompt = {1};
    request.max_new_tokens = 1;
    const auto collected = Submit(request);
    EXPECT_TRUE(collected->Wait().status.ok());
    return collected->final_event->attention.peak_cache_bytes;
  }

  absl::Status Refused(const EngineRequest& request) {
    auto to = std::make_shared<Collected>();
    const auto id = engine_->Submit(request, std::make_unique<CollectingSink>(to));
    EXPECT_EQ(to->n_done_calls, 0);
    return id.status();
  }

  const TinyModel model_;
  std::unique_ptr<Engine> engine_;
  RequestId last_id_ = 0;
};

inline EngineRequest Request(int n_prompt, int n_new, int variant = 0) {
  EngineRequest r;
  for (int i = 0; i < n_prompt; ++i) r.prompt.push_back((i * 31 + variant * 17 + 5) % 96);
  r.max_new_tokens = n_new;
  return r;
}

inline EngineRequest AtpRequest(int n_prompt, int n_new, int variant = 0) {
  EngineRequest r = Request(n_prompt, n_new, variant);
  r.attention.mechanism = Mechanism::kAtp;
  r.attention.atp.block_tokens = 64;
  r.attention.atp.window_blocks = 0;
  r.attention.atp.rank = RankFixed{4};
  return r;
}

EngineRequest TaylorShiftRequest(int n_prompt, int n_new, TaylorForm form, int variant = 0) {
  EngineRequest r = Request(n_prompt, n_new, variant);
  r.attention.mechanism = Mechanism::kTaylorShift;
  r.attention.taylorshift.form = form;
  return r;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_ENGINE_FIXTURE_H_
