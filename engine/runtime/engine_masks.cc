// The masks of a step's constrained rows: who may join the step, and what is computed beside it.
#include <vector>

#include "engine/base/clock.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/guarded.h"

namespace lowkey {

// Takes the rows out of the batch whose token cannot be drawn because its mask is not ready when
// the step's budget is spent: the scheduler names them again for the next step. A row that gives no
// token needs no mask. A suspect is alone and its rows must come together to clear it, so its masks
// are computed where they are needed.
void EngineImpl::TakeOutUnready(std::vector<ScheduledRows>& batch) {
  std::vector<size_t> rows;
  std::vector<MaskTurn*> turns;
  for (size_t i = 0; i < batch.size(); ++i) {
    RequestState& state = *live_.at(batch[i].request);
    const bool has_mask = state.request.constraint != nullptr && state.request.max_new_tokens > 0;
    if (!batch[i].samples || !has_mask || state.is_suspect) continue;
    rows.push_back(i);
    turns.push_back(&state.choices[batch[i].choice].mask_turn);
  }
  if (rows.empty()) return;
  const absl::Time start = SteadyNow();
  const std::vector<bool> is_ready = mask_budget_.Prepare(turns, [&](size_t i, int64_t most) {
    const ScheduledRows& r = batch[rows[i]];
    MaskProgress progress;
    // A failure is not the end: the mask is tried again where its token is drawn.
    (void)Guarded([&] { progress = live_.at(r.request)->PrepareMask(r.choice, most); });
    return progress;
  });
  for (size_t i = rows.size(); i-- > 0;) {
    if (is_ready[i]) continue;
    batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(rows[i]));
    ++counters_.n_mask_waits;
  }
  // The step begins after this wait, which NoteTime must not take from the step's time.
  counters_.waited_for_masks += SteadyNow() - start;
  noted_mask_wait_ = counters_.waited_for_masks;
}

// Lets the worker begin the masks that the step's tokens are drawn with.
void EngineImpl::BeginMasks(const std::vector<ScheduledRows>& batch) {
  if (!begins_masks_) return;
  for (const ScheduledRows& rows : batch) {
    RequestState& state = *live_.at(rows.request);
    if (!rows.samples || !state.is_forked()) continue;
    ConstraintPath* const path = state.choices[rows.choice].sampler->constraint();
    if (path == nullptr) continue;
    // A mask that cannot be begun is computed when its token is drawn.
    (void)Guarded([&] { path->Begin(mask_worker_, DraftsOf(state, rows), &mask_budget_); });
  }
}

// Returns whether the mask of the row of a draft that came is ready, within the step's budget.
bool EngineImpl::HasDraftsMask(RequestState& state, int32_t choice) {
  if (state.request.constraint == nullptr || state.is_suspect) return true;
  const absl::Time start = SteadyNow();
  const MaskProgress progress = state.PrepareMask(choice, mask_budget_.left());
  mask_budget_.Spend(progress.n_work);
  counters_.waited_for_masks += SteadyNow() - start;
  return progress.is_ready;
}

}  // namespace lowkey
