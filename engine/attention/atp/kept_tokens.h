#ifndef LOWKEY_ENGINE_ATTENTION_ATP_KEPT_TOKENS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_KEPT_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/attention/atp/principal_block.h"

namespace lowkey {

// Stores the tokens of a block's pages for refine, of one KV head at one layer, at `kept`
// (PrincipalView). `scratch` keeps its memory between calls.
void StoreKept(const AttentionGeometry& geometry, const PrincipalShape& shape,
               absl::Span<const PageHandle> pages, int64_t layer, int64_t kv_head,
               std::vector<float>& scratch, std::byte* kept);

// Returns the type in which kept tokens are read: quantized ones are widened.
StorageType KeptReadType(const PrincipalShape& shape);

// Asks memory for what ReadKept reads of a token; without what it shares with the other keys of its
// group where they were asked for.
void PrefetchKept(const AttentionGeometry& geometry, const PrincipalShape& shape,
                  const std::byte* kept, int64_t token, bool shares_group);

// Reads a token of a block: its key [DotWidth] and its value [head_dim_padded], in that type.
void ReadKept(const AttentionGeometry& geometry, const PrincipalShape& shape, const std::byte* kept,
              int64_t token, std::byte* key, std::byte* value);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_KEPT_TOKENS_H_
