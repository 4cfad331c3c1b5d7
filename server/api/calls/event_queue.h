#ifndef LOWKEY_SERVER_API_CALLS_EVENT_QUEUE_H_
#define LOWKEY_SERVER_API_CALLS_EVENT_QUEUE_H_

#include <cstddef>
#include <deque>

#include "lowkey/v1/generation.pb.h"

namespace lowkey {

// Holds the events of one stream that wait for the reader. Neighboring deltas of one choice are
// joined. Not thread-safe.
class EventQueue {
 public:
  void AddDelta(v1::ChoiceDelta delta);
  void AddFinal(v1::FinalEvent final_event);

  bool empty() const { return events_.empty(); }
  size_t n_tokens() const { return n_tokens_; }
  // Returns how many deltas were added since the queue was empty.
  size_t n_deltas() const { return n_deltas_; }
  // Removes the oldest event and returns it. There must be one.
  v1::GenerateEvent Take();

 private:
  std::deque<v1::GenerateEvent> events_;
  size_t n_tokens_ = 0, n_deltas_ = 0;
};

// Returns the event that says so.
v1::GenerateEvent EventOf(v1::PromptLogprobs logprobs);

// Appends what `more` gained to `delta`, of the same choice.
void Append(const v1::ChoiceDelta& more, v1::ChoiceDelta& delta);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_CALLS_EVENT_QUEUE_H_
