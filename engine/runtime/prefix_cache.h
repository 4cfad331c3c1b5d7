#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/cache/prefix_index.h"
#include "engine/runtime/request_state.h"

namespace lowkey {

// Where a prompt's rows are interrupted, ascending, to keep what was computed so far: at whole
// pages, of its marks and, for a mechanism that has a prefix only of all that it computed, of its
// end.
std::vector<int64_t> PrefixStops(const EngineRequest& request, PrefixReach reach);
bool IsPrefixStop(const EngineRequest& request, PrefixReach reach, int64_t n_tokens);

// What prompts left in the cache, for those that begin alike: of the same tenant, attended to with
// the same options, whole pages. Rows continue from it to the bit as if all had been computed.
// Belongs to the engine's thread.
class PrefixCache {
 public:
  // Gives choice 0, which is empty, the longest prefix of the prompt that is held, and returns its
  // tokens: at least one row of the prompt is left, and every row whose logits are asked for.
  int64_t Restore(RequestState& state);

  // Holds on to what choice 0 has after n_computed rows (AttentionMechanism::Prefix says which of
  // it others can use).
  void Save(const RequestState& state, const AttentionMechanism& mechanism, int64_t n_computed);

  // Gives up what was used longest ago; false when nothing is held.
  bool DropOldest() { return index_.DropOldest(); }

 private:
  struct Key {
    std::string tenant;
    AttentionOptions attention;
    bool operator==(const Key&) const = default;
  };

  PrefixIndex<Key, SequenceCache> index_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_CACHE_H_
