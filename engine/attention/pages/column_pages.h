#ifndef LOWKEY_ENGINE_ATTENTION_PAGES_COLUMN_PAGES_H_
#define LOWKEY_ENGINE_ATTENTION_PAGES_COLUMN_PAGES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/attention.h"

namespace lowkey {

// Pages of mechanisms that cache slices of the layer's input: tiles [head_dim][64] in the cache's
// type, where a token is a column. Such a tile serves as keys (a right-hand side for scores) and as
// values (rows to be dotted with weights). Unwritten columns are zero.

// Returns the bytes of one tile.
int64_t ColumnTileBytes(const AttentionGeometry& geometry);

// Gives the sequence its own slab of page_bytes for every row of the segment, as TakePages
// (paged_kv.h) does for pages.
absl::Status TakeSlabPages(const Segment& segment, int64_t page_bytes, Cache& cache,
                           std::vector<std::shared_ptr<Slab>>& pages);

// Writes x [head_dim] as the tile's column `slot`, 0..63.
void WriteColumn(const AttentionGeometry& geometry, std::byte* tile, int64_t slot, const float* x);

// Reads the tile's column `slot` into x [head_dim].
void ReadColumn(const AttentionGeometry& geometry, const std::byte* tile, int64_t slot, float* x);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PAGES_COLUMN_PAGES_H_
