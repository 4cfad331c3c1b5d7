#include "server/api/calls/event_queue.h"

#include <memory>
#include <utility>

namespace lowkey {
namespace {

// Takes the memory of an event's part before the event says that it has it: what mutable_ leaves
// where there is no memory cannot be destroyed.
template <typename Part>
std::unique_ptr<Part> Owned(Part part) {
  return std::make_unique<Part>(std::move(part));
}

}  // namespace

void Append(const v1::ChoiceDelta& more, v1::ChoiceDelta& delta) {
  delta.mutable_text()->append(more.text());
  delta.mutable_tokens()->MergeFrom(more.tokens());
}

v1::GenerateEvent EventOf(v1::PromptLogprobs logprobs) {
  auto owned = Owned(std::move(logprobs));
  v1::GenerateEvent event;
  event.set_allocated_prompt_logprobs(owned.release());
  return event;
}

void EventQueue::AddDelta(v1::ChoiceDelta delta) {
  const auto n_tokens = static_cast<size_t>(delta.tokens_size());
  const bool can_join = !events_.empty() && events_.back().has_delta() &&
                        events_.back().delta().choice() == delta.choice();
  if (can_join) {
    Append(delta, *events_.back().mutable_delta());
  } else {
    auto owned = Owned(std::move(delta));
    events_.emplace_back().set_allocated_delta(owned.release());
  }
  n_tokens_ += n_tokens;
  ++n_deltas_;
}

void EventQueue::AddFinal(v1::FinalEvent final_event) {
  auto owned = Owned(std::move(final_event));
  events_.emplace_back().set_allocated_final(owned.release());
}

v1::GenerateEvent EventQueue::Take() {
  v1::GenerateEvent event = std::move(events_.front());
  events_.pop_front();
  n_tokens_ -= static_cast<size_t>(event.delta().tokens_size());
  if (events_.empty()) n_deltas_ = 0;
  return event;
}

}  // namespace lowkey
