#include "server/grammar/mask_cache.h"

namespace lowkey::grammar {
namespace {

// The bytes that an entry takes beside its mask and the two copies of its key.
constexpr int64_t kEntryBytes = 96;

int64_t BytesOf(const TopKey& key, const TopMask& mask) {
  return mask.size_bytes() + 2 * key.size_bytes() + kEntryBytes;
}

}  // namespace

std::shared_ptr<const TopMask> MaskCache::Find(const TopKey& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = found_.find(key);
  if (found == found_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

void MaskCache::Keep(const TopKey& key, std::shared_ptr<const TopMask> mask) {
  absl::MutexLock lock(&mutex_);
  if (found_.contains(key)) return;  // another thread was faster, and its mask is the same
  size_bytes_ += BytesOf(key, *mask);
  entries_.emplace_front(key, std::move(mask));
  found_[key] = entries_.begin();
  while (size_bytes_ > max_bytes_ && entries_.size() > 1) {
    size_bytes_ -= BytesOf(entries_.back().first, *entries_.back().second);
    found_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

int64_t MaskCache::size_bytes() const {
  absl::MutexLock lock(&mutex_);
  return size_bytes_;
}

}  // namespace lowkey::grammar
