#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_REPEATED_WORK_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_REPEATED_WORK_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

namespace lowkey {

// A map of at most `most` keys. The least recently used key goes first.
template <typename Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(size_t most) : most_(most) {}

  // Returns the key's value, which counts as a use; nullptr where there is none.
  Value* Find(uint64_t key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    uses_.splice(uses_.begin(), uses_, found->second);
    return &found->second->second;
  }
  // Adds a key that the map does not have; returns the value that went for it.
  std::optional<Value> Add(uint64_t key, Value value) {
    std::optional<Value> gone;
    if (entries_.size() == most_) {
      gone = std::move(uses_.back().second);
      entries_.erase(uses_.back().first);
      uses_.pop_back();
    }
    uses_.emplace_front(key, std::move(value));
    entries_[key] = uses_.begin();
    return gone;
  }
  void Remove(uint64_t key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    uses_.erase(found->second);
    entries_.erase(found);
  }
  // Calls body(value) for all.
  template <typename F>
  void Each(F body) {
    for (auto& [key, value] : uses_) body(value);
  }

 private:
  const size_t most_;
  std::list<std::pair<uint64_t, Value>> uses_;  // the most recent first
  std::unordered_map<uint64_t, typename std::list<std::pair<uint64_t, Value>>::iterator> entries_;
};

// Says which repeated work a device keeps (Device::Repeat): work that is asked for a second time.
// Most steps of a load that changes are never seen again, and to keep one costs more than to queue
// it.
template <typename Work>
class RepeatedWork {
 public:
  // Work takes some kilobytes of host and device memory for each of its kernels; a key takes
  // little.
  static constexpr size_t kMostKept = 64, kMostSeen = 1024;

  // Returns the work that is kept under the key; nullptr where none is.
  Work* Find(uint64_t key) { return kept_.Find(key); }
  // Notes a key that Find does not have. Returns whether the work should be kept now.
  bool IsSecond(uint64_t key) {
    if (seen_.Find(key) == nullptr) {
      seen_.Add(key, true);
      return false;
    }
    seen_.Remove(key);
    return true;
  }
  // Keeps the work; returns the work that is forgotten for it.
  std::optional<Work> Keep(uint64_t key, Work work) { return kept_.Add(key, std::move(work)); }
  // Calls body(work) for all work that is kept.
  template <typename F>
  void Each(F body) {
    kept_.Each(body);
  }

 private:
  RecentlyUsed<Work> kept_{kMostKept};
  RecentlyUsed<bool> seen_{kMostSeen};
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_REPEATED_WORK_H_
