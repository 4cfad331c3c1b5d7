#include "server/api/calls/event_queue.h"

#include <memory>
#include <utility>

namespace lowkey {

void Append(const v1::ChoiceDelta& more, v1::ChoiceDelta& delta) {
  delta.mutable_text()->append(more.text());
  delta.mutable_tokens()->MergeFrom(more.tokens());
}

void EventQueue::AddDelta(v1::ChoiceDelta delta) {
  const auto n_tokens = static_cast<size_t>(delta.tokens_size());
  const bool can_join = !events_.empty() && events_.back().has_delta() &&
                        events_.back().delta().choice() == delta.choice();
  if (can_join) {
    Append(delta, *events_.back().mutable_delta());
  } else {
    // mutable_delta would leave an event without its delta when there is no memory for it.
    auto owned = std::make_unique<v1::ChoiceDelta>(std::move(delta));
    events_.emplace_back().set_allocated_delta(owned.release());
  }
  n_tokens_ += n_tokens;
}

void EventQueue::Add(v1::GenerateEvent event) { events_.push_back(std::move(event)); }

void EventQueue::PopFront() {
  n_tokens_ -= static_cast<size_t>(events_.front().delta().tokens_size());
  events_.pop_front();
}

void EventQueue::Clear() {
  events_.clear();
  n_tokens_ = 0;
}

}  // namespace lowkey
