#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_DRAFTS_FIXTURE_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_DRAFTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {

// Drafts change how many rows a step has and nothing that a request gets.
class DraftsFixture : public EngineTest {
 protected:
  // Starts an engine on the host, which alone verifies drafts and constrains.
  void Start(EngineOptions options = {}) {
    options.n_threads = 2;
    if (options.cache_bytes == 0) options.cache_bytes = 32 << 20;
    const auto checkpoint = OpenCheckpoint(model_.path()).value();
    if (options.codes == nullptr) options.codes = CodesOf(checkpoint);
    auto engine = CreateEngine(checkpoint, options, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // A choice that had ended before its request was preempted holds nothing at the request's end.
  // Drafts let choices end in other steps, so `may_drop_choices` is for preempted requests.
  static void ExpectSame(Collected& got, Collected& want, bool may_drop_choices = false) {
    const FinalEvent a = got.Wait(), b = want.Wait();
    EXPECT_EQ(a.status, b.status);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);
    EXPECT_EQ(a.finish_reasons, b.finish_reasons);
    EXPECT_EQ(a.n_generated, b.n_generated);
    EXPECT_EQ(b.n_drafted_tokens, 0);
    if (may_drop_choices && a.n_generated.size() > 1) {
      EXPECT_LE(a.attention.n_compressed_blocks, b.attention.n_compressed_blocks);
      EXPECT_LE(a.attention.n_state_tokens, b.attention.n_state_tokens);
      EXPECT_LE(a.attention.standard_cache_bytes, b.attention.standard_cache_bytes);
      return;
    }
    EXPECT_EQ(a.attention.n_compressed_blocks, b.attention.n_compressed_blocks);
    EXPECT_EQ(a.attention.n_state_tokens, b.attention.n_state_tokens);
    EXPECT_EQ(a.attention.standard_cache_bytes, b.attention.standard_cache_bytes);
  }

  // Runs the requests one by one.
  std::vector<std::shared_ptr<Collected>> RunAlone(const std::vector<EngineRequest>& requests) {
    std::vector<std::shared_ptr<Collected>> all;
    for (const EngineRequest& r : requests) {
      all.push_back(Submit(r));
      EXPECT_TRUE(all.back()->Wait().status.ok()) << all.back()->Wait().status;
    }
    return all;
  }
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_DRAFTS_FIXTURE_H_
