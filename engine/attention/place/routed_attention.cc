#include "engine/attention/place/routed_attention.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

RoutedAttention::RoutedAttention(std::unique_ptr<AttentionMechanism> first, Serves first_serves,
                                 std::unique_ptr<AttentionMechanism> second)
    : first_(std::move(first)), first_serves_(first_serves), second_(std::move(second)) {
  LK_CHECK(first_->id() == second_->id());
}

absl::Status RoutedAttention::Plan(absl::Span<const Segment> segments) {
  first_segments_.clear();
  second_segments_.clear();
  for (const Segment& s : segments) {
    (first_serves_(s.sequence->options) ? first_segments_ : second_segments_).push_back(s);
  }
  // Empty lists are planned too: they end the plan before.
  LK_RETURN_IF_ERROR(first_->Plan(first_segments_));
  return second_->Plan(second_segments_);
}

std::optional<uint64_t> RoutedAttention::PlanKey() const {
  return second_segments_.empty() ? first_->PlanKey() : std::nullopt;
}

bool RoutedAttention::ReadsInputs() const {
  return (!first_segments_.empty() && first_->ReadsInputs()) ||
         (!second_segments_.empty() && second_->ReadsInputs());
}

void RoutedAttention::Attend(const LayerRows& rows) {
  if (!first_segments_.empty()) first_->Attend(rows);
  if (!second_segments_.empty()) second_->Attend(rows);
}

}  // namespace lowkey
