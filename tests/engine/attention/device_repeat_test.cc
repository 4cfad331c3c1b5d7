// Steps that a device queues again without asking the mechanism: launches read the step's own
// tables, and steps of three and of four sequences are the same work.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

// Unless the environment names a device.
const int kSetsDevice = setenv("LOWKEY_TEST_DEVICE", "emulated", 0);

struct Kind {
  std::string name;
  AttentionOptions options;
  int64_t window_tokens = 0;  // taylorshift's
};

AttentionOptions OptionsOf(Mechanism mechanism) {
  AttentionOptions options;
  options.mechanism = mechanism;
  return options;
}

AttentionOptions AtpOf(int32_t n_refined) {
  AtpOptions o;
  o.rank = RankFixed{8};
  o.block_tokens = 64;
  o.window_blocks = 0;
  o.refine_tokens = n_refined;
  return Atp(o);
}

std::vector<Kind> Kinds() {
  return {{"standard", Standard()},
          {"int8", Standard(CacheStorage::kInt8)},
          {"taylorshift_direct", TaylorShift(TaylorForm::kDirect)},
          {"taylorshift_recurrent", TaylorShift(TaylorForm::kRecurrent)},
          {"taylorshift_window", TaylorShift(TaylorForm::kRecurrent), 64},
          {"efficient", OptionsOf(Mechanism::kEfficient)},
          {"super", OptionsOf(Mechanism::kSuper)},
          {"atp", AtpOf(0)},
          {"atp_refined", AtpOf(16)}};
}

class RepeatedStepsTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Mechanisms, RepeatedStepsTest, testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RepeatedStepsTest, OfThreeAndOfFourSequencesComputeWhatEachComputesAlone) {
  constexpr int kSteps = 60;
  const int64_t prompts[4] = {40, 61, 130, 190};
  MechanismRunner::Options options;
  options.window_tokens = GetParam().window_tokens;
  options.repeats = true;
  const AttentionGeometry g{1, 2, 1, 32, std::nullopt, StorageType::kBFloat16};
  MechanismRunner runner(g, GetParam().options.mechanism, options);
  std::vector<AttentionRows> rows;
  std::vector<SequenceCache> sequences;
  std::vector<std::vector<float>> outs(4);
  for (int i = 0; i < 4; ++i) {
    rows.push_back(RandomRows(g, prompts[i] + (i < 3 ? kSteps : kSteps / 2), i + 1));
    sequences.push_back(NewSequence(GetParam().options, prompts[i]));
  }
  const auto part = [&](int i, int64_t n) {
    return MechanismRunner::Part{&sequences[i], &rows[i], n, &outs[i]};
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(runner.Step({part(i, prompts[i])}).ok());
  for (int step = 0; step < kSteps; ++step) {
    std::vector<MechanismRunner::Part> parts = {part(0, 1), part(1, 1), part(2, 1)};
    if (step % 2 == 0) parts.push_back(part(3, 1));
    ASSERT_TRUE(runner.Step(parts).ok());
  }
  for (int i = 0; i < 4; ++i) {
    RunOptions alone{GetParam().options};
    alone.n_prompt_tokens = prompts[i];
    alone.window_tokens = GetParam().window_tokens;
    EXPECT_TRUE(SameBits(outs[i], RunSequence(rows[i], alone))) << i;
  }
  EXPECT_LE(runner.n_attended(), 16) << "work is not repeated";
}

}  // namespace
}  // namespace lowkey
