#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/buffer.h"
#include "engine/cache/prefix_index.h"
#include "engine/runtime/request_state.h"

namespace lowkey {

// Returns the positions, ascending, at which a prompt's rows are interrupted because the mechanism
// computes it in blocks.
std::vector<int64_t> BlockStops(const EngineRequest& request, const AttentionMechanism& mechanism);
// Returns these positions and those at which rows are interrupted to keep a prefix: the prompt's
// marks rounded down to whole pages and, for a mechanism that can give a prefix of all rows only,
// the last whole page.
std::vector<int64_t> PrefixStops(const EngineRequest& request, const AttentionMechanism& mechanism);
bool IsPrefixStop(const EngineRequest& request, const AttentionMechanism& mechanism,
                  int64_t n_tokens);

// Counts the bytes that one tenant's prefixes hold. They share pages and slabs, which count once.
class PrefixMemory {
 public:
  // Counts a page or slab for one more prefix. When it throws, nothing has changed.
  void Add(MemoryId memory, int64_t n_bytes);
  void Remove(MemoryId memory) noexcept;
  // Counts the slabs that were added since the last Recount as large as they are now.
  void Recount();
  int64_t n_bytes() const { return n_bytes_; }

 private:
  struct Piece {
    int64_t n_bytes = 0;
    int64_t n_prefixes = 0;
  };
  std::map<MemoryId, Piece> pieces_;
  std::vector<MemoryId> new_slabs_;  // some may be gone
  int64_t n_bytes_ = 0;
};

// A prefix whose bytes are counted from Count on to its end. It holds all of its memory, or, behind
// a shorter prefix, only the part that it adds (AttentionMechanism::AppendPart): so the prefixes of
// a long prompt, one for each page, do not each hold a list of all pages before.
class HeldPrefix {
 public:
  // `cache` is the part behind `before`, which lives longer but may be destroyed first once nobody
  // asks for Whole; null: it is the whole prefix.
  HeldPrefix(SequenceCache cache, PrefixMemory& memory, const HeldPrefix* before = nullptr)
      : cache_(std::move(cache)),
        memory_(memory),
        before_(before),
        n_tokens_((before == nullptr ? 0 : before->n_tokens()) + cache_.n_tokens) {}
  HeldPrefix(const HeldPrefix&) = delete;
  HeldPrefix& operator=(const HeldPrefix&) = delete;
  ~HeldPrefix();

  // Counts what a whole prefix, which lives longer, does not hold at the same place; null: all.
  void Count(const HeldPrefix* shorter);
  // Returns the length in tokens, with what lies before the part.
  int64_t n_tokens() const { return n_tokens_; }
  // Puts the parts together.
  SequenceCache Whole(const AttentionMechanism& mechanism) const;

 private:
  const SequenceCache cache_;
  PrefixMemory& memory_;
  const HeldPrefix* const before_;
  const int64_t n_tokens_;
  std::vector<MemoryId> counted_;  // pages and slabs
};

// The prefixes, in whole pages, that earlier prompts left for prompts of the same tenant that begin
// alike and have the same attention options. Rows continue from a prefix to the bit as if all had
// been computed. Belongs to the engine's thread.
class PrefixCache {
 public:
  // Gives choice 0, which is empty, the longest prefix held of its prompt and returns the prefix's
  // length in tokens. Leaves out at least the last row and all rows whose logits are wanted.
  int64_t Restore(RequestState& state, const AttentionMechanism& mechanism);

  // Returns the length of the longest prefix that Restore may give the request, whatever is held.
  static int64_t MostTokens(const RequestState& state);
  // Returns the length of the longest prefix held that Restore may give the request, which counts
  // as used.
  int64_t NumTokens(const RequestState& state);

  // Keeps the prefixes of choice 0 after n_computed rows that AttentionMechanism::Prefix gives.
  void Save(const RequestState& state, const AttentionMechanism& mechanism, int64_t n_computed);

  // Keeps the prefixes that begin with the prompt's first n_tokens, which are kept already, and go
  // on with these pieces (AttentionMechanism::AppendPiece). Returns the length of the longest:
  // shorter where memory, or a piece, was wrong. ABORTED when the first tokens are kept no longer.
  absl::StatusOr<int64_t> Extend(const RequestState& state, AttentionMechanism& mechanism,
                                 int64_t n_tokens, absl::Span<const Buffer> pieces);

  // Counts the prefixes that were saved since the last Recount as large as they are now: a
  // mechanism may shrink slabs of a step in Advance, which follows Save.
  void Recount();

  // Drops the prefix that was used longest ago of the tenant whose prefixes hold the most bytes;
  // false when none is held. So a tenant that fills the cache takes nothing from those who hold
  // less.
  bool DropOldest();

 private:
  struct Tenant {
    PrefixMemory memory;
    PrefixIndex<AttentionOptions, std::unique_ptr<HeldPrefix>> index;  // ends before its memory
  };

  void Add(const EngineRequest& request, absl::Span<const int32_t> tokens,
           const SequenceCache& cache, const AttentionMechanism& mechanism);

  std::map<std::string, Tenant> by_tenant_;
  bool has_new_ = false;  // since the last Recount
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
