#include "engine/attention/place/routed_attention.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

RoutedAttention::RoutedAttention(std::unique_ptr<AttentionMechanism> first, Serves first_serves,
                                 std::unique_ptr<AttentionMechanism> second)
    : first_{std::move(first), {}}, second_{std::move(second), {}}, first_serves_(first_serves) {
  LK_CHECK(first_.mechanism->id() == second_.mechanism->id());
}

std::optional<int64_t> RoutedAttention::max_tokens() const {
  const auto first = first_.mechanism->max_tokens(), second = second_.mechanism->max_tokens();
  if (!first.has_value() || !second.has_value()) return first.has_value() ? first : second;
  return std::min(*first, *second);
}

absl::Status RoutedAttention::Plan(absl::Span<const Segment> segments) {
  first_.segments.clear();
  second_.segments.clear();
  for (const Segment& s : segments) {
    (first_serves_(s.sequence->options) ? first_ : second_).segments.push_back(s);
  }
  // Empty lists too: what they planned before is over.
  LK_RETURN_IF_ERROR(first_.mechanism->Plan(first_.segments));
  return second_.mechanism->Plan(second_.segments);
}

std::optional<uint64_t> RoutedAttention::PlanKey() const {
  return second_.segments.empty() ? first_.mechanism->PlanKey() : std::nullopt;
}

void RoutedAttention::Attend(const LayerRows& rows) {
  for (const Way* way : {&first_, &second_}) {
    if (!way->segments.empty()) way->mechanism->Attend(rows);
  }
}

}  // namespace lowkey
