#ifndef LOWKEY_SERVER_GRAMMAR_MASK_CACHE_H_
#define LOWKEY_SERVER_GRAMMAR_MASK_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/grammar/stacks.h"

namespace lowkey::grammar {

// TopMask holds what the top frame of a stack says about every token, whatever lies below the
// frame; or, for a key with frames below, the tokens that end the top frame and go on in those
// frames.
struct TopMask {
  // The tokens that stay above the frames below: a list where they are few, a bit per token where
  // they are many. One of the two is empty.
  std::vector<int32_t> tokens = {};
  std::vector<uint64_t> bits = {};
  // The trie's nodes where the frame may be done with more bytes to come. Node 0 among them: the
  // frame may be done now.
  std::vector<int32_t> escapes = {};
  // The frames from the top frame on that a stack met needs to be finished.
  int deepest = 0;
  int64_t n_steps = 0;       // that finding it took
  absl::Status status = {};  // an error: too much work

  int64_t size_bytes() const {
    return static_cast<int64_t>(sizeof(*this) + tokens.size() * sizeof(int32_t) +
                                bits.size() * sizeof(uint64_t) + escapes.size() * sizeof(int32_t));
  }
};

// A top frame, and the frames below where the mask depends on them. Counters of the top frame that
// differ only far from their bounds are one key.
struct TopKey {
  uint64_t grammar = 0;
  int32_t state = 0;
  int32_t below_least = 0, below_most = 0;  // distances of the counter, at most a token's bytes + 1
  int32_t depth = 0;                        // frames below, where they limit what may come; else 0
  // With frames here the mask has the tokens that lead through the top frame's escapes into them.
  Stack below = {};

  friend bool operator==(const TopKey&, const TopKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TopKey& key) {
    return H::combine(std::move(h), key.grammar, key.state, key.below_least, key.below_most,
                      key.depth, key.below);
  }
  int64_t size_bytes() const {
    return static_cast<int64_t>(sizeof(*this) + below.size() * sizeof(Frame));
  }
};

// Keeps the masks that were used last, of all grammars over one vocabulary. Thread-safe.
class MaskCache {
 public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;

  explicit MaskCache(int64_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // Returns nullptr where there is none.
  std::shared_ptr<const TopMask> Find(const TopKey& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(const TopKey& key, std::shared_ptr<const TopMask> mask) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t size_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Entries = std::list<std::pair<TopKey, std::shared_ptr<const TopMask>>>;

  const int64_t max_bytes_;
  mutable absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // the one used last comes first
  absl::flat_hash_map<TopKey, Entries::iterator> found_ ABSL_GUARDED_BY(mutex_);
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_MASK_CACHE_H_
