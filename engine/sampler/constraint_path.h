#ifndef LOWKEY_ENGINE_SAMPLER_CONSTRAINT_PATH_H_
#define LOWKEY_ENGINE_SAMPLER_CONSTRAINT_PATH_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/sampler/mask_budget.h"
#include "engine/sampler/mask_worker.h"
#include "engine/sampler/token_constraint.h"

namespace lowkey {

// MaskCounts says how a sequence came by its masks.
struct MaskCounts {
  int64_t n_masks = 0;
  int64_t n_ahead = 0;    // of these, computed before they were asked for
  absl::Duration waited;  // for masks, by the thread that draws
};

// The constraint of one sequence, and copies of it that went on with drafts: each stands one token
// after the other, with its mask. A worker computes them ahead; a token that is the next draft goes
// to the next copy, and any other token drops the copies. The masks are those of the constraint
// alone, whatever was computed ahead. One thread, beside the worker.
class ConstraintPath : private MaskWorker::Task {
 public:
  explicit ConstraintPath(std::unique_ptr<TokenConstraint> constraint);
  ~ConstraintPath() override;

  // These do what TokenConstraint's do. They wait for the worker no longer than for the mask that
  // it is at.
  absl::StatusOr<absl::Span<const uint64_t>> Mask();
  absl::Status Advance(int32_t token);
  // Works on the mask of the next token alone, not on those behind drafts.
  MaskProgress Prepare(int64_t most_work);

  // Lets the worker compute the masks before and after each of these drafts, as far as the
  // constraint lets them come and as far as the budget reaches; nullptr: without a bound. Worker
  // and budget must outlive this.
  void Begin(MaskWorker& worker, absl::Span<const int32_t> drafts, MaskBudget* budget = nullptr);

  // Returns the constraint after all tokens so far, which nobody else uses until the next Begin.
  TokenConstraint& constraint();
  // Returns what was counted since the last call.
  MaskCounts TakeCounts();

 private:
  struct Place {
    int32_t token = 0;  // the last one that came
    std::unique_ptr<TokenConstraint> constraint;
    std::optional<absl::StatusOr<absl::Span<const uint64_t>>> mask = std::nullopt;
    bool is_awaited = false;  // Prepare worked on the mask
  };

  void Run() override;
  void Join();
  bool ComputeAhead(Place& place);

  std::deque<Place> places_;  // the first one is the sequence's; drafts lead to the others
  std::vector<int32_t> drafts_;
  MaskWorker* worker_ = nullptr;  // set while it may be at work
  MaskBudget* budget_ = nullptr;  // of the worker's masks
  std::atomic<bool> is_needed_{false};
  MaskCounts counts_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_CONSTRAINT_PATH_H_
