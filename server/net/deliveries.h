#ifndef LOWKEY_SERVER_NET_DELIVERIES_H_
#define LOWKEY_SERVER_NET_DELIVERIES_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/net/event_loop.h"

namespace lowkey {

// Gathers work for loops, so that a step of the engine wakes each loop once and not once a token.
// Thread-safe.
class Deliveries {
 public:
  // `gathers` false: Add flushes at once, as nobody else does.
  explicit Deliveries(bool gathers) : gathers_(gathers) {}

  // `work` runs on the loop's thread after the next Flush. Throws std::bad_alloc, and has no effect
  // then.
  void Add(EventLoop& loop, std::function<void()> work);
  void Flush();

 private:
  struct Batch {
    EventLoop* loop;
    std::shared_ptr<std::vector<std::function<void()>>> work;
  };

  const bool gathers_;
  absl::Mutex mutex_;
  std::vector<Batch> batches_ ABSL_GUARDED_BY(mutex_);  // one a loop that has work
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_DELIVERIES_H_
