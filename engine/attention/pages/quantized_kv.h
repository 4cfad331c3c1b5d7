#ifndef LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_
#define LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_

#include <cstdint>

#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"

namespace lowkey {

// Closed pages in 8 or 4 bits. 32 numbers share a scale and a middle, both in bf16, and a number is
// middle + scale * code. A key's group is 32 consecutive tokens of one channel (two groups a page),
// a value's group is 32 channels of one token.
inline constexpr int64_t kGroup = 32;
inline constexpr int64_t kKeyGroups = kPageTokens / kGroup;
inline int64_t ValueGroups(const AttentionGeometry& g) {
  return (g.head_dim + kGroup - 1) / kGroup;
}

// One KV head's closed page at one layer:
//   keys    [kKeyGroups][head_dim][32]
//   values  [64][head_dim_padded]
// as int8, or as 4 bits (KernelTable::unpack_int4); and in bf16, so that they are right-hand sides
// for KernelTable::DotRows,
//   key_scales, key_middles      [kKeyGroups][DotWidth]  zero beyond head_dim
//   value_scales, value_middles  [ValueGroups][64]
struct QuantizedTile {
  CacheStorage storage = CacheStorage::kInt8;  // never kDtype
  const std::byte *keys = nullptr, *values = nullptr;
  const uint16_t *key_scales = nullptr, *key_middles = nullptr;
  const uint16_t *value_scales = nullptr, *value_middles = nullptr;
  int64_t size_bytes = 0;  // the whole tile, from `keys` on
};

// Returns the bytes of a closed page over all layers.
int64_t QuantizedPageBytes(const AttentionGeometry& geometry, CacheStorage storage);

QuantizedTile QuantizedTileOf(const AttentionGeometry& geometry, CacheStorage storage,
                              const Slab& page, int64_t layer, int64_t kv_head);

// Writes one KV head of a full page at one layer to its place in `page`. The codes of numbers that
// are not finite have no meaning.
void QuantizeTile(const AttentionGeometry& geometry, CacheStorage storage, const KvTile& exact,
                  int64_t layer, int64_t kv_head, Slab& page);

// A single row of n numbers in int8, n even: the codes, then scale and middle in bf16 for every 32
// numbers.
int64_t QuantizedRowBytes(int64_t n);
void QuantizeRow(const float* x, int64_t n, std::byte* row);
void ReadQuantizedRow(const std::byte* row, int64_t n, float* x);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_
