#ifndef LOWKEY_ENGINE_SAMPLER_MASK_BUDGET_H_
#define LOWKEY_ENGINE_SAMPLER_MASK_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "engine/sampler/token_constraint.h"

namespace lowkey {

// MaskTurn is the place of one sequence in the order in which MaskBudget prepares masks.
struct MaskTurn {
  // The budget's clock when the sequence began, plus the work on its masks since; nullopt: it has
  // not begun.
  std::optional<int64_t> at = std::nullopt;
  bool waits = false;  // its mask was not ready in the last step that asked for it
};

// Bounds the work that all sequences' masks add to one step. A sequence joins a step if its mask is
// ready, and sits the step out otherwise. When masks need more than the budget, the sequences that
// had the least work done come first, as in weighted fair queueing: a clock advances by the work
// that each waiting sequence would have got of an equal share. Thus a sequence whose masks are
// cheap never waits for those that are not, and none waits forever. One thread, but for left() and
// Spend().
class MaskBudget {
 public:
  // About 12 ms on one core.
  static constexpr int64_t kWorkPerStep = 1'000'000;
  // The work of a sequence before it is another's turn.
  static constexpr int64_t kSlice = 16'384;
  // The turn of a sequence that needed little is kept at most so far behind the clock.
  static constexpr int64_t kCredit = 2 * kWorkPerStep;

  // work_per_step > 0.
  explicit MaskBudget(int64_t work_per_step = kWorkPerStep) : work_per_step_(work_per_step) {}

  // Begins a step: works on the masks of these sequences until all are ready or the step's budget
  // is spent. `prepare(i, most_work)` works on the i-th sequence's mask (TokenConstraint::Prepare).
  // Returns whether each is ready. The work exceeds the budget by one part of a mask at most.
  std::vector<bool> Prepare(absl::Span<MaskTurn* const> turns,
                            absl::FunctionRef<MaskProgress(size_t i, int64_t most_work)> prepare);

  // Returns the work that is left of the step's budget, which drafts may use; at least 0.
  int64_t left() const;
  void Spend(int64_t n_work) { left_ -= n_work; }

 private:
  void AdvanceClock(absl::Span<MaskTurn* const> turns, int64_t n_work);

  const int64_t work_per_step_;
  std::atomic<int64_t> left_{0};
  int64_t clock_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_MASK_BUDGET_H_
