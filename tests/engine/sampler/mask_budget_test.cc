#include "engine/sampler/mask_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace lowkey {
namespace {

constexpr int64_t kPerStep = 1000;

// A sequence whose next mask takes `needed` units; it counts the masks that became ready.
struct Sequence {
  int64_t needed = 0, n_done = 0, n_masks = 0;
  MaskTurn turn = {};
};

// Runs one step; the sequences that joined it need a new mask. Returns the step's work.
int64_t Step(MaskBudget& budget, std::vector<Sequence>& sequences) {
  std::vector<MaskTurn*> turns;
  for (Sequence& s : sequences) turns.push_back(&s.turn);
  int64_t total = 0;
  const std::vector<bool> is_ready = budget.Prepare(turns, [&](size_t i, int64_t most) {
    Sequence& s = sequences[i];
    const int64_t n = std::clamp<int64_t>(s.needed - s.n_done, 0, std::max<int64_t>(0, most));
    s.n_done += n;
    total += n;
    return MaskProgress{.is_ready = s.n_done == s.needed, .n_work = n};
  });
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(is_ready[i], sequences[i].n_done == sequences[i].needed);
    if (!is_ready[i]) continue;
    ++sequences[i].n_masks;
    sequences[i].n_done = 0;
  }
  return total;
}

TEST(MaskBudgetTest, AllJoinAStepWhoseMasksFitTheBudget) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences(10, {.needed = 50});
  for (int step = 1; step <= 5; ++step) {
    EXPECT_EQ(Step(budget, sequences), 500);
    EXPECT_EQ(budget.left(), 500);
    for (const Sequence& s : sequences) EXPECT_EQ(s.n_masks, step);
  }
  budget.Spend(800);
  EXPECT_EQ(budget.left(), 0);
}

TEST(MaskBudgetTest, AStepsWorkIsBoundedOverAllSequences) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences(64, {.needed = 8000});
  for (int step = 0; step < 64 * 8; ++step) EXPECT_EQ(Step(budget, sequences), kPerStep);
  for (const Sequence& s : sequences) EXPECT_EQ(s.n_masks, 1);
}

TEST(MaskBudgetTest, CheapMasksNeverWaitForDearOnes) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences(64, {.needed = 8000});
  sequences.push_back({.needed = 5});
  for (int step = 0; step < 64; ++step) (void)Step(budget, sequences);  // every one has begun
  const int64_t n_before = sequences.back().n_masks;
  for (int step = 0; step < 1000; ++step) (void)Step(budget, sequences);
  EXPECT_EQ(sequences.back().n_masks, n_before + 1000);
}

TEST(MaskBudgetTest, ADearMaskIsReadyInTheEndBesideCheapOnesThatFillTheBudget) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences(3, {.needed = 400});
  sequences.push_back({.needed = 10'000});
  for (int step = 0; step < 200; ++step) (void)Step(budget, sequences);
  EXPECT_GE(sequences.back().n_masks, 1);
}

TEST(MaskBudgetTest, ADearMaskIsReadyInTheEndBesideSequencesThatKeepArriving) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences(4, {.needed = kPerStep});
  sequences.push_back({.needed = 10'000});
  for (int step = 0; step < 200; ++step) {
    (void)Step(budget, sequences);
    for (size_t i = 0; i < 4; ++i) {
      if (sequences[i].n_masks > 0) sequences[i] = {.needed = kPerStep};
    }
  }
  EXPECT_GE(sequences.back().n_masks, 1);
}

TEST(MaskBudgetTest, AReadyMaskNeedsNoBudget) {
  MaskBudget budget(kPerStep);
  std::vector<Sequence> sequences = {{.needed = 5000}, {.needed = 0}};
  for (int step = 1; step <= 4; ++step) {
    (void)Step(budget, sequences);
    EXPECT_EQ(sequences[1].n_masks, step);
  }
}

}  // namespace
}  // namespace lowkey
