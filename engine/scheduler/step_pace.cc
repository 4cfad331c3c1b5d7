#include "engine/scheduler/step_pace.h"

#include <algorithm>

namespace lowkey {
namespace {

// The limit before any step was noted: a fraction of a second on two slow cores.
constexpr int64_t kFirstRows = 32;

}  // namespace

StepPace::StepPace(absl::Duration target, int64_t max_rows)
    : target_(target), max_rows_(max_rows), limit_(std::min(kFirstRows, max_rows)) {}

void StepPace::Note(int64_t n_rows, absl::Duration took) {
  // Every row counts the same; steps of few rows cost more per row, which errs on the safe side.
  const double share = absl::FDivDuration(target_, std::max(took, absl::Nanoseconds(1)));
  const double fits = std::min(static_cast<double>(n_rows) * share, 2.0 * max_rows_);
  if (took <= target_ && n_rows < limit_) return;
  const auto limit = static_cast<int64_t>(fits);
  limit_ = std::clamp(std::min(limit, 2 * limit_), std::min(kMinRows, max_rows_), max_rows_);
}

}  // namespace lowkey
