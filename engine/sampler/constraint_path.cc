#include "engine/sampler/constraint_path.h"

#include <utility>

#include "absl/time/clock.h"
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
  const absl::Time start = absl::Now();
  Join();
  Place& place = places_.front();
  ++counts_.n_masks;
  if (place.mask.has_value()) {
    ++counts_.n_ahead;
  } else {
    place.mask = place.constraint->Mask();
  }
  counts_.waited += absl::Now() - start;
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
  places_.erase(places_.begin() + 1, places_.end());
  return absl::OkStatus();
}

void ConstraintPath::Begin(MaskWorker& worker, absl::Span<const int32_t> drafts) {
  Join();
  places_.erase(places_.begin() + 1, places_.end());
  drafts_.assign(drafts.begin(), drafts.end());
  is_needed_ = false;
  worker_ = &worker;
  worker.Add(this);
}

void ConstraintPath::Run() {
  for (size_t i = 0; !is_needed_; ++i) {
    Place& last = places_.back();
    if (!last.mask.has_value()) last.mask = last.constraint->Mask();
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
