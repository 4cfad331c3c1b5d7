#include "engine/attention/place/routed_attention.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

RoutedAttention::RoutedAttention(std::unique_ptr<AttentionMechanism> device, Serves device_serves,
                                 std::unique_ptr<AttentionMechanism> host)
    : ForwardedAttention(std::move(host)),
      device_(std::move(device)),
      device_serves_(device_serves) {
  LK_CHECK(device_->id() == id());
}

absl::Status RoutedAttention::Plan(absl::Span<const Segment> segments) {
  device_segments_.clear();
  host_segments_.clear();
  for (const Segment& s : segments) {
    (device_serves_(s.sequence->options) ? device_segments_ : host_segments_).push_back(s);
  }
  // Empty lists are planned too: they end the plan before.
  LK_RETURN_IF_ERROR(device_->Plan(device_segments_));
  return host().Plan(host_segments_);
}

std::optional<uint64_t> RoutedAttention::PlanKey() const {
  return host_segments_.empty() ? device_->PlanKey() : std::nullopt;
}

void RoutedAttention::Attend(const LayerRows& rows) {
  if (!device_segments_.empty()) device_->Attend(rows);
  if (!host_segments_.empty()) host().Attend(rows);
}

}  // namespace lowkey
