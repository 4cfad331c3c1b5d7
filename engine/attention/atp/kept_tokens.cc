#include "engine/attention/atp/kept_tokens.h"

#include <cstring>

#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/dtype.h"
#include "engine/base/prefetch.h"

namespace lowkey {
namespace {

void StoreKeptRow(const float* x, int64_t n, StorageType type, std::byte* out) {
  if (type == StorageType::kInt8) {
    QuantizeRow(CacheStorage::kInt8, x, n, out);
  } else if (type == StorageType::kFloat32) {
    std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  } else {
    Kernels().to_bf16(x, reinterpret_cast<uint16_t*>(out), n);
  }
}

// The numbers of the 32 keys that a token's key belongs to, of a packed block.
int64_t KeyNumbersAt(const AttentionGeometry& g, const PrincipalShape& shape, int64_t token) {
  return shape.n_tokens * shape.KeptTokenBytes(g) +
         token / kGroup * 2 * DotWidth(g) * static_cast<int64_t>(sizeof(uint16_t));
}

}  // namespace

void StoreKept(const AttentionGeometry& g, const PrincipalShape& shape,
               absl::Span<const PageHandle> pages, int64_t layer, int64_t kv_head,
               std::vector<float>& scratch, std::byte* kept) {
  const int64_t width = DotWidth(g), padded = g.head_dim_padded(), ld = width + padded;
  const int64_t token_bytes = shape.KeptTokenBytes(g);
  scratch.assign(kPageTokens * ld, 0.0f);
  int64_t token = 0;
  for (const PageHandle& page : pages) {
    ReadKv(g, TileOf(g, page, layer, kv_head), {}, scratch.data(), scratch.data() + width, ld);
    for (int64_t t = 0; t < kPageTokens; ++t, ++token) {
      const float* key = scratch.data() + t * ld;
      std::byte* out = kept + token * token_bytes;
      std::byte* value = out + shape.KeptKeyBytes(g);
      if (!shape.packs_kept) {
        StoreKeptRow(key, width, shape.kept_type, out);
        StoreKeptRow(key + width, padded, shape.kept_type, value);
        continue;
      }
      if (t % kGroup == 0) {
        QuantizeKeys(key, ld, width, out, token_bytes,
                     reinterpret_cast<uint16_t*>(kept + KeyNumbersAt(g, shape, token)));
      }
      QuantizeRow(CacheStorage::kInt4, key + width, padded, value);
    }
  }
}

StorageType KeptReadType(const PrincipalShape& shape) {
  return shape.kept_type == StorageType::kInt8 ? StorageType::kFloat32 : shape.kept_type;
}

void PrefetchKept(const AttentionGeometry& g, const PrincipalShape& shape, const std::byte* kept,
                  int64_t token, bool shares_group) {
  const int64_t token_bytes = shape.KeptTokenBytes(g);
  Prefetch(kept + token * token_bytes, token_bytes);
  if (!shape.packs_kept || shares_group) return;
  Prefetch(kept + KeyNumbersAt(g, shape, token),
           2 * DotWidth(g) * static_cast<int64_t>(sizeof(uint16_t)));
}

void ReadKept(const AttentionGeometry& g, const PrincipalShape& shape, const std::byte* kept,
              int64_t token, std::byte* key, std::byte* value) {
  const int64_t key_bytes = shape.KeptKeyBytes(g), value_bytes = shape.KeptValueBytes(g);
  const int64_t width = DotWidth(g), padded = g.head_dim_padded();
  const std::byte* from = kept + token * shape.KeptTokenBytes(g);
  if (shape.kept_type != StorageType::kInt8) {
    std::memcpy(key, from, key_bytes);
    std::memcpy(value, from + key_bytes, value_bytes);
    return;
  }
  auto* key_floats = reinterpret_cast<float*>(key);
  auto* value_floats = reinterpret_cast<float*>(value);
  if (shape.packs_kept) {
    const auto* numbers = reinterpret_cast<const uint16_t*>(kept + KeyNumbersAt(g, shape, token));
    Kernels().widen_int4(reinterpret_cast<const uint8_t*>(from), numbers, numbers + width,
                         key_floats, width);
  } else {
    ReadQuantizedRow(CacheStorage::kInt8, from, width, key_floats);
  }
  ReadQuantizedRow(shape.packs_kept ? CacheStorage::kInt4 : CacheStorage::kInt8, from + key_bytes,
                   padded, value_floats);
}

}  // namespace lowkey
