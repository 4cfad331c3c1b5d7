#ifndef LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_
#define LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_

#include <cstdint>

#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/round_up.h"

namespace lowkey {

// Closed pages in 8, 4, 3 or 2 bits. 32 numbers share a scale and a middle, both in bf16, and a
// number is middle + scale * code. A key's group is 32 consecutive tokens of one channel (two
// groups a page), a value's group is 32 channels of one token.
inline constexpr int64_t kGroup = 32;
inline constexpr int64_t kKeyGroups = kPageTokens / kGroup;
inline int64_t ValueGroups(const AttentionGeometry& g) { return DivideUp(g.head_dim, kGroup); }

// Returns the bits of a code; `storage` is not kDtype.
int CodeBits(CacheStorage storage);

// One KV head's closed page at one layer:
//   keys    [kKeyGroups][head_dim][32]
//   values  [64][head_dim_padded]
// as int8, or packed (KernelTable::unpack_codes); and in bf16
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

// A single row of n numbers in int8 or int4, n a multiple of KernelTable::panel_columns: the codes,
// in int4 of every 32 numbers as KernelTable::unpack_codes takes them, then scale and middle in
// bf16 for every 32 numbers.
int64_t QuantizedRowBytes(CacheStorage storage, int64_t n);
void QuantizeRow(CacheStorage storage, const float* x, int64_t n, std::byte* row);
void ReadQuantizedRow(CacheStorage storage, const std::byte* row, int64_t n, float* x);

// 32 keys of n numbers in int4, n even, where 32 keys share a scale and a middle in each channel:
// KernelTable::widen_int4 reads them. Key i is at keys + i * ld and its codes at codes + i *
// stride; numbers [2][n] has the scales, then the middles.
void QuantizeKeys(const float* keys, int64_t ld, int64_t n, std::byte* codes, int64_t stride,
                  uint16_t* numbers);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PAGES_QUANTIZED_KV_H_
