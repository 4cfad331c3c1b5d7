#include "engine/sampler/constraint_path.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace lowkey {

ConstraintPath::ConstraintPath(std::unique_ptr<TokenConstraint> constraint) {
  places_.push_back({0, std::move(constraint)});
}

ConstraintPath::~ConstraintPath() { Join(); }

void ConstraintPath::Join() {
  if (worker_ == nullptr) return;
  is_needed_ = true;
  worker_->Join(this);
  worker_ = nullptr;
}

absl::StatusOr<absl::Span<const uint64_t>> ConstraintPath::Mask() {
  const absl::Time start = SteadyNow();
  Join();
  Place& place = places_.front();
  ++counts_.n_masks;
  if (place.mask.has_value() && !place.is_awaited) ++counts_.n_ahead;
  if (!place.mask.has_value()) place.mask = place.constraint->Mask();
  counts_.waited += SteadyNow() - start;
  return *place.mask;
}

absl::Status ConstraintPath::Advance(int32_t token) {
  Join();
  if (places_.size() > 1 && places_[1].token == token) {
    places_.pop_front();
    return absl::OkStatus();
  }
  LK_RETURN_IF_ERROR(places_.front().constraint->Advance(token));
  places_.front().mask.reset();
  places_.front().is_awaited = false;
  places_.erase(places_.begin() + 1, places_.end());
  return absl::OkStatus();
}

MaskProgress ConstraintPath::Prepare(int64_t most_work) {
  Join();
  Place& place = places_.front();
  if (place.mask.has_value()) return {};
  const MaskProgress progress = place.constraint->Prepare(most_work);
  place.is_awaited = place.is_awaited || progress.n_work > 0;
  return progress;
}

void ConstraintPath::Begin(MaskWorker& worker, absl::Span<const int32_t> drafts,
                           MaskBudget* budget) {
  Join();
  places_.erase(places_.begin() + 1, places_.end());
  drafts_.assign(drafts.begin(), drafts.end());
  budget_ = budget;
  is_needed_ = false;
  worker_ = &worker;
  worker.Add(this);
}

// Computes a place's mask; returns whether it did so before the mask was needed and the budget
// spent.
bool ConstraintPath::ComputeAhead(Place& place) {
  while (!place.mask.has_value()) {
    if (is_needed_) return false;
    const int64_t most = budget_ == nullptr ? MaskBudget::kSlice : budget_->left();
    const MaskProgress progress = place.constraint->Prepare(std::min(most, MaskBudget::kSlice));
    if (budget_ != nullptr) budget_->Spend(progress.n_work);
    if (progress.is_ready) {
      place.mask = place.constraint->Mask();
    } else if (most <= 0) {
      return false;
    }
  }
  return true;
}

void ConstraintPath::Run() {
  for (size_t i = 0; !is_needed_; ++i) {
    Place& last = places_.back();
    if (!ComputeAhead(last)) return;
    if (i == drafts_.size() || !last.mask->ok()) return;
    std::unique_ptr<TokenConstraint> next = last.constraint->Copy();
    if (!next->Advance(drafts_[i]).ok()) return;
    places_.push_back({drafts_[i], std::move(next)});
  }
}

TokenConstraint& ConstraintPath::constraint() {
  Join();
  return *places_.front().constraint;
}

MaskCounts ConstraintPath::TakeCounts() { return std::exchange(counts_, {}); }

}  // namespace lowkey
