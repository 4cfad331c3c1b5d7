#include "engine/sampler/mask_budget.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace lowkey {

int64_t MaskBudget::left() const { return std::max<int64_t>(0, left_); }

std::vector<bool> MaskBudget::Prepare(
    absl::Span<MaskTurn* const> turns,
    absl::FunctionRef<MaskProgress(size_t i, int64_t most_work)> prepare) {
  left_ = work_per_step_;
  // Among equal turns the sequence that comes first in the step is the first.
  std::vector<bool> is_ready(turns.size(), false);
  using Next = std::pair<int64_t, size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (size_t i = 0; i < turns.size(); ++i) {
    MaskTurn& turn = *turns[i];
    if (!turn.at.has_value()) turn.at = clock_;
    // A sequence that waits keeps its turn, which the others pass in the end.
    if (!turn.waits) turn.at = std::max(*turn.at, clock_ - kCredit);
    is_ready[i] = prepare(i, 0).is_ready;
    turn.waits = !is_ready[i];
    if (turn.waits) next.push({*turn.at, i});
  }
  int64_t n_work = 0;
  while (!next.empty() && left() > 0) {
    const size_t i = next.top().second;
    next.pop();
    const MaskProgress progress = prepare(i, std::min(left(), kSlice));
    const int64_t n = std::max<int64_t>(1, progress.n_work);
    Spend(n);
    n_work += n;
    *turns[i]->at += n;
    is_ready[i] = progress.is_ready;
    turns[i]->waits = !progress.is_ready;
    if (!progress.is_ready) next.push({*turns[i]->at, i});
  }
  AdvanceClock(turns, n_work);
  return is_ready;
}

// Work that was done counts no further once nobody waits: all begin alike when there is too much.
void MaskBudget::AdvanceClock(absl::Span<MaskTurn* const> turns, int64_t n_work) {
  int64_t n_waiting = 0, latest = clock_;
  for (const MaskTurn* turn : turns) {
    n_waiting += turn->waits ? 1 : 0;
    latest = std::max(latest, *turn->at);
  }
  clock_ = n_waiting == 0 ? latest : clock_ + std::max<int64_t>(1, n_work / n_waiting);
}

}  // namespace lowkey
