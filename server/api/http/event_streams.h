#ifndef LOWKEY_SERVER_API_HTTP_EVENT_STREAMS_H_
#define LOWKEY_SERVER_API_HTTP_EVENT_STREAMS_H_

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/net/event_loop.h"

namespace lowkey {

// A stream of events that must not stay silent for long. It belongs to its loop.
class EventStream {
 public:
  // Is called every second.
  virtual void OnSilence(absl::Time now) = 0;

 protected:
  ~EventStream() = default;
};

// Calls the streams of every loop once a second. Thread-safe; the loops may outlive it.
class EventStreams {
 public:
  // Tests that tick themselves give a period that never ends.
  explicit EventStreams(absl::Duration period = absl::Seconds(1)) : period_(period) {}

  // On the stream's loop. The stream is called until Remove, which is ignored for others.
  void Add(EventLoop& loop, EventStream& stream);
  void Remove(EventLoop& loop, EventStream& stream);

  // On the loop: calls its streams at once, as the loop does after each period.
  void Tick(EventLoop& loop, absl::Time now);

 private:
  struct Shard;

  std::shared_ptr<Shard> ShardOf(EventLoop& loop);

  const absl::Duration period_;
  absl::Mutex mutex_;
  std::map<EventLoop*, std::shared_ptr<Shard>> shards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_EVENT_STREAMS_H_
