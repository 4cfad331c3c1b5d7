#include <algorithm>
#include <string>
#include <vector>

#include "engine/attention/selection/selection.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

AttentionOptions Of(Mechanism mechanism) {
  AttentionOptions options;
  options.mechanism = mechanism;
  return options;
}

struct MemoryCase {
  std::string name;
  AttentionOptions options;
};

std::vector<MemoryCase> MemoryCases() {
  AtpOptions layer, kv;
  kv.basis = AtpBasis::kKv, kv.rank = RankFixed{8}, kv.block_tokens = 128, kv.refine_tokens = 64;
  AtpOptions layer_int8 = layer, kept_int8 = kv;
  layer_int8.basis_storage = layer_int8.principal_storage = AtpStorage::kInt8;
  kept_int8.kept_storage = AtpStorage::kInt8;
  return {{"standard", Standard()},
          {"standard_int8", Standard(CacheStorage::kInt8)},
          {"standard_int4", Standard(CacheStorage::kInt4)},
          {"standard_int3", Standard(CacheStorage::kInt3)},
          {"standard_int2", Standard(CacheStorage::kInt2)},
          {"atp", Atp(layer)},
          {"atp_int8", Atp(layer_int8)},
          {"atp_kv_refine", Atp(kv)},
          {"atp_kv_refine_kept_int8", Atp(kept_int8)},
          {"taylorshift", TaylorShift()},
          {"optimised", Of(Mechanism::kOptimised)},
          {"efficient", Of(Mechanism::kEfficient)},
          {"efficient_no_keys", EqualOptions(Mechanism::kEfficient)[1]},
          {"super", Of(Mechanism::kSuper)},
          {"lasso", Of(Mechanism::kLasso)}};
}

// The table of docs/selection.md, and a length within a block. What a sequence holds is taken in
// Plan and given back in Advance; what Attend writes there changes no bytes (ranks are fixed).
TEST(PredictBytes, IsWhatASequenceHolds) {
  const AttentionGeometry g{2, 9, 3, 64, std::nullopt, StorageType::kBFloat16};
  for (const MemoryCase& c : MemoryCases()) {
    for (const int64_t n : {2048, 2590, 8192, 32768}) {
      MechanismWeights weights = TestWeights(g, Mechanism::kEfficient);
      weights.alignment_tokens = 32768;
      MechanismRunner runner(g, c.options.mechanism, weights);
      SequenceCache sequence = NewSequence(c.options, n - 1);
      Segment rows{&sequence, 0, 0, 0};  // outlives its step
      const auto plan = [&](int64_t n_rows) {
        rows = {&sequence, sequence.n_tokens, n_rows, 0};
        ASSERT_TRUE(runner.mechanism().Plan({&rows, 1}).ok());
      };
      while (sequence.n_tokens < n - 1) {
        const int64_t n_rows = std::min<int64_t>(512, n - 1 - sequence.n_tokens);
        plan(n_rows);
        runner.mechanism().Advance(sequence, n_rows);
      }
      plan(1);
      const auto held = static_cast<double>(runner.cache().used_bytes());
      const int64_t predicted = PredictBytes({&runner.mechanism(), c.options, 0, {}}, {n - 1, 1});
      EXPECT_NEAR(static_cast<double>(predicted) / held, 1.0, 0.05) << c.name << ", " << n;
      testing::Test::RecordProperty(c.name + "_" + std::to_string(n), std::to_string(held));
    }
  }
}

// The prediction counts once what several answers to a prompt share at their end.
TEST(PredictBytes, IsWhatChoicesHold) {
  const AttentionGeometry g{2, 9, 3, 64, std::nullopt, StorageType::kBFloat16};
  constexpr int64_t kChoices = 3;
  // Some stay within the prompt's last page, some do not, for one it is the first.
  const RequestLengths kLengths[] = {
      {40, 12, kChoices}, {2490, 11, kChoices}, {2490, 100, kChoices}, {2560, 70, kChoices}};
  for (const MemoryCase& c : MemoryCases()) {
    for (const RequestLengths& lengths : kLengths) {
      MechanismWeights weights = TestWeights(g, Mechanism::kEfficient);
      weights.alignment_tokens = 32768;
      MechanismRunner runner(g, c.options.mechanism, weights);
      const auto compute = [&](SequenceCache& sequence, int64_t end) {
        while (sequence.n_tokens < end) {
          const int64_t n_rows = std::min<int64_t>(512, end - sequence.n_tokens);
          const Segment rows{&sequence, sequence.n_tokens, n_rows, 0};
          ASSERT_TRUE(runner.mechanism().Plan({&rows, 1}).ok());
          runner.mechanism().Advance(sequence, n_rows);
        }
      };
      SequenceCache prompt = NewSequence(c.options, lengths.n_prompt_tokens);
      compute(prompt, lengths.n_prompt_tokens);
      std::vector<SequenceCache> choices(kChoices, prompt);
      prompt = NewSequence(c.options, lengths.n_prompt_tokens);
      // The last token is not computed.
      const int64_t end = lengths.n_prompt_tokens + lengths.n_new_tokens - 1;
      for (SequenceCache& choice : choices) {
        while (choice.n_tokens < end) compute(choice, choice.n_tokens + 1);
      }
      const auto held = static_cast<double>(runner.cache().used_bytes());
      const int64_t predicted = PredictBytes({&runner.mechanism(), c.options, 0, {}}, lengths);
      EXPECT_NEAR(static_cast<double>(predicted) / held, 1.0, 0.05)
          << c.name << ", " << lengths.n_prompt_tokens << " and " << lengths.n_new_tokens;
    }
  }
}

}  // namespace
}  // namespace lowkey
