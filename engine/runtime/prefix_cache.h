#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/cache/prefix_index.h"
#include "engine/runtime/request_state.h"

namespace lowkey {

// Returns the positions, ascending, at which a prompt's rows are interrupted to keep a prefix: its
// marks rounded down to whole pages and, for a mechanism that can give a prefix of all rows only,
// the last whole page.
std::vector<int64_t> PrefixStops(const EngineRequest& request, PrefixReach reach);
bool IsPrefixStop(const EngineRequest& request, PrefixReach reach, int64_t n_tokens);

// The prefixes, in whole pages, that earlier prompts left for prompts of the same tenant that begin
// alike and have the same attention options. Rows continue from a prefix to the bit as if all had
// been computed. Belongs to the engine's thread.
class PrefixCache {
 public:
  // Gives choice 0, which is empty, the longest prefix held of its prompt and returns the prefix's
  // length in tokens. Leaves out at least the last row and all rows whose logits are wanted.
  int64_t Restore(RequestState& state);

  // Keeps the prefixes of choice 0 after n_computed rows that AttentionMechanism::Prefix gives.
  void Save(const RequestState& state, const AttentionMechanism& mechanism, int64_t n_computed);

  // Drops the prefix that was used longest ago of the tenant that holds the most prefixes; false
  // when none is held. So a tenant that fills the cache takes nothing from those who hold less.
  bool DropOldest();

 private:
  using Index = PrefixIndex<AttentionOptions, SequenceCache>;

  std::map<std::string, Index> by_tenant_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
