#ifndef LOWKEY_ENGINE_ATTENTION_PAGES_PAGED_KV_H_
#define LOWKEY_ENGINE_ATTENTION_PAGES_PAGED_KV_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/dtype.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// The layout of exact keys and values in a page. For each layer and KV head a page holds
//   K^T [key_dim, 64]            a key is a column: a row of scores is a product over key_dim
//   V   [64, head_dim_padded]    zero beyond head_dim
// in the geometry's cache type. Both are right-hand sides for KernelTable::Gemm.
struct KvTile {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  // The tile that is read after this one, as a hint to prefetch it.
  const std::byte* next = nullptr;
};

// Returns head_dim rounded up to the step of KernelTable::DotRows: the width of a key that is a
// row.
int64_t DotWidth(const AttentionGeometry& geometry);

KvTile TileOf(const AttentionGeometry& geometry, std::byte* page, int64_t layer, int64_t kv_head);
inline KvTile TileOf(const AttentionGeometry& geometry, const PageHandle& page, int64_t layer,
                     int64_t kv_head) {
  return TileOf(geometry, page.data(), layer, kv_head);
}
// Returns the tile in page `page` of a sequence, whose pages are read in their order.
KvTile TileOf(const AttentionGeometry& geometry, absl::Span<const PageHandle> pages, int64_t page,
              int64_t layer, int64_t kv_head);

// Gives the sequence its own page of page_bytes for every row of the segment: allocates missing
// pages, copies shared ones. RESOURCE_EXHAUSTED when the cache is full; pages taken so far stay
// with the sequence.
absl::Status TakePages(const Segment& segment, int64_t page_bytes, Cache& cache);
// Takes pages of the cache's own size.
inline absl::Status TakePages(const Segment& segment, Cache& cache) {
  return TakePages(segment, cache.page_bytes(), cache);
}

// Returns the factor of a segment's key [key_dim] when it is written.
using KeyScale = float (*)(const Segment& segment, const float* key, int64_t key_dim);

// Writes the segments' keys and values at rows.layer to their pages: keys as they are unless a
// scale is given.
void WriteKv(const AttentionGeometry& geometry, absl::Span<const Segment> segments,
             const LayerRows& rows, ThreadPool& pool, KeyScale key_scale = nullptr);

// Reads a page's keys as floats: K^T [key_dim, 64].
void ReadKeys(const AttentionGeometry& geometry, const KvTile& tile, float* keys);

// Reads tokens of one page as floats: key i [key_dim] to keys + i * ld, value i [head_dim] to
// values + i * ld.
void ReadKv(const AttentionGeometry& geometry, const KvTile& tile, const PageSlots& slots,
            float* keys, float* values, int64_t ld);

// Returns x as an element of a page: a float, or the bits of a bf16.
template <typename T>
inline T Convert(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return ToBFloat16(x).bits;
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PAGES_PAGED_KV_H_
