#include "server/api/http/event_streams.h"

#include <set>
#include <vector>

#include "engine/base/contained.h"

namespace lowkey {

// Belongs to its loop.
struct EventStreams::Shard {
  // A call may end others of the same connection.
  void Tick(absl::Time now) {
    const std::vector<EventStream*> present(streams.begin(), streams.end());
    for (EventStream* stream : present) {
      if (streams.count(stream) > 0) stream->OnSilence(now);
    }
  }

  std::set<EventStream*> streams;
};

std::shared_ptr<EventStreams::Shard> EventStreams::ShardOf(EventLoop& loop) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Shard>& shard = shards_[&loop];
  if (shard == nullptr) {
    auto made = std::make_shared<Shard>();
    loop.Every(period_, [made](absl::Time now) { RunContained([&] { made->Tick(now); }); });
    shard = std::move(made);
  }
  return shard;
}

void EventStreams::Add(EventLoop& loop, EventStream& stream) {
  ShardOf(loop)->streams.insert(&stream);
}

void EventStreams::Tick(EventLoop& loop, absl::Time now) { ShardOf(loop)->Tick(now); }

void EventStreams::Remove(EventLoop& loop, EventStream& stream) {
  absl::MutexLock lock(&mutex_);
  const auto it = shards_.find(&loop);
  if (it != shards_.end() && it->second != nullptr) it->second->streams.erase(&stream);
}

}  // namespace lowkey
