#include "engine/attention/pages/quantized_kv.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/dtype.h"

namespace lowkey {
namespace {

int64_t CodeBytes(CacheStorage storage, int64_t n) { return n * CodeBits(storage) / 8; }

int64_t TileBytes(const AttentionGeometry& g, CacheStorage storage) {
  const int64_t numbers = 2 * (kKeyGroups * DotWidth(g) + ValueGroups(g) * kPageTokens);
  return CodeBytes(storage, kPageTokens * (g.head_dim + g.head_dim_padded())) +
         numbers * static_cast<int64_t>(sizeof(uint16_t));
}

// Returns the least bf16 that is not below x >= 0.
uint16_t RoundUpToBFloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits >> 16) + ((bits & 0xffffu) != 0));
}

// Codes numbers that share a scale and a middle.
struct Quantizer {
  float scale = 0, middle = 0;
  float lowest = 0, highest = 0;  // the range of codes

  // Chooses both so that n numbers, at x + i * step, fit, and stores them.
  Quantizer(CacheStorage storage, const float* x, int64_t n, int64_t step, uint16_t* scale_out,
            uint16_t* middle_out)
      : lowest(static_cast<float>(-(1 << (CodeBits(storage) - 1)))), highest(-lowest - 1) {
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < n; ++i) {
      low = std::min(low, x[i * step]);
      high = std::max(high, x[i * step]);
    }
    const float share = highest / (highest - lowest);
    *middle_out = ToBFloat16(share * low + (1 - share) * high).bits;
    middle = ToFloat(BFloat16{*middle_out});
    *scale_out = RoundUpToBFloat16(std::max((high - middle) / highest, (low - middle) / lowest));
    scale = ToFloat(BFloat16{*scale_out});
  }

  int8_t Code(float x) const {
    const float units = std::nearbyint((x - middle) / scale);
    if (std::isnan(units)) return 0;  // 0 / 0, or NaN
    return static_cast<int8_t>(std::clamp(units, lowest, highest));
  }
};

// Packs `width` bits of every code plus `raise`, from bit `shift` on: the first part of the codes
// has the lowest bits of out. Returns what follows out.
std::byte* StorePlane(absl::Span<const int8_t> codes, int raise, int shift, int width,
                      std::byte* out) {
  const size_t n_parts = 8 / width, part = codes.size() / n_parts;
  const int mask = (1 << width) - 1;
  for (size_t i = 0; i < part; ++i) {
    int bits = 0;
    for (size_t p = 0; p < n_parts; ++p) {
      bits |= ((codes[p * part + i] + raise) >> shift & mask) << (width * p);
    }
    out[i] = static_cast<std::byte>(bits);
  }
  return out + part;
}

// Writes codes as KernelTable::unpack_codes takes them.
void StoreCodes(CacheStorage storage, absl::Span<const int8_t> codes, std::byte* out) {
  const int bits = CodeBits(storage);
  if (bits == 8) {
    std::memcpy(out, codes.data(), codes.size());
    return;
  }
  const int raise = 1 << (bits - 1);
  out = StorePlane(codes, raise, 0, bits == 4 ? 4 : 2, out);
  if (bits == 3) StorePlane(codes, raise, 2, 1, out);
}

}  // namespace

int CodeBits(CacheStorage storage) {
  switch (storage) {
    case CacheStorage::kInt4:
      return 4;
    case CacheStorage::kInt3:
      return 3;
    case CacheStorage::kInt2:
      return 2;
    default:
      return 8;
  }
}

int64_t QuantizedPageBytes(const AttentionGeometry& g, CacheStorage storage) {
  return g.n_layers * g.n_kv_heads * TileBytes(g, storage);
}

QuantizedTile QuantizedTileOf(const AttentionGeometry& g, CacheStorage storage, const Slab& page,
                              int64_t layer, int64_t kv_head) {
  QuantizedTile tile;
  tile.storage = storage;
  tile.size_bytes = TileBytes(g, storage);
  tile.keys = page.data() + (layer * g.n_kv_heads + kv_head) * tile.size_bytes;
  tile.values = tile.keys + CodeBytes(storage, kPageTokens * g.head_dim);
  tile.key_scales = reinterpret_cast<const uint16_t*>(
      tile.values + CodeBytes(storage, kPageTokens * g.head_dim_padded()));
  tile.key_middles = tile.key_scales + kKeyGroups * DotWidth(g);
  tile.value_scales = tile.key_middles + kKeyGroups * DotWidth(g);
  tile.value_middles = tile.value_scales + ValueGroups(g) * kPageTokens;
  return tile;
}

void QuantizeTile(const AttentionGeometry& g, CacheStorage storage, const KvTile& exact,
                  int64_t layer, int64_t kv_head, Slab& page) {
  const QuantizedTile tile = QuantizedTileOf(g, storage, page, layer, kv_head);
  const auto writable = [&page](const auto* p) {
    const auto* at = reinterpret_cast<const std::byte*>(p);
    return page.data() + (at - static_cast<const Slab&>(page).data());
  };
  const auto numbers = [&](const uint16_t* p) { return reinterpret_cast<uint16_t*>(writable(p)); };
  const int64_t d = g.head_dim, padded = g.head_dim_padded();
  std::vector<float> keys(kPageTokens * d), values(kPageTokens * d);
  ReadKv(g, exact, {}, keys.data(), values.data(), d);

  std::vector<int8_t> codes(kPageTokens * d);
  for (int64_t row = 0; row < kKeyGroups * d; ++row) {
    const float* x = keys.data() + row / d * kGroup * d + row % d;
    const int64_t at = row / d * DotWidth(g) + row % d;
    const Quantizer q(storage, x, kGroup, d, numbers(tile.key_scales) + at,
                      numbers(tile.key_middles) + at);
    for (int64_t i = 0; i < kGroup; ++i) codes[row * kGroup + i] = q.Code(x[i * d]);
  }
  StoreCodes(storage, codes, writable(tile.keys));

  codes.assign(kPageTokens * padded, 0);
  for (int64_t row = 0; row < ValueGroups(g) * kPageTokens; ++row) {
    const int64_t first = row / kPageTokens * kGroup, token = row % kPageTokens;
    const int64_t n = std::min(kGroup, d - first);
    const float* x = values.data() + token * d + first;
    const Quantizer q(storage, x, n, 1, numbers(tile.value_scales) + row,
                      numbers(tile.value_middles) + row);
    for (int64_t j = 0; j < n; ++j) codes[token * padded + first + j] = q.Code(x[j]);
  }
  StoreCodes(storage, codes, writable(tile.values));
}

int64_t QuantizedRowBytes(CacheStorage storage, int64_t n) {
  const int64_t n_groups = (n + kGroup - 1) / kGroup;
  return CodeBytes(storage, n) + 2 * n_groups * static_cast<int64_t>(sizeof(uint16_t));
}

void QuantizeRow(CacheStorage storage, const float* x, int64_t n, std::byte* row) {
  auto* numbers = reinterpret_cast<uint16_t*>(row + CodeBytes(storage, n));
  int8_t codes[kGroup];
  for (int64_t first = 0; first < n; first += kGroup, numbers += 2) {
    const int64_t in_group = std::min(kGroup, n - first);
    const Quantizer q(storage, x + first, in_group, 1, numbers, numbers + 1);
    for (int64_t j = 0; j < in_group; ++j) codes[j] = q.Code(x[first + j]);
    StoreCodes(storage, {codes, static_cast<size_t>(in_group)}, row + CodeBytes(storage, first));
  }
}

void ReadQuantizedRow(CacheStorage storage, const std::byte* row, int64_t n, float* x) {
  const KernelTable& kernels = Kernels();
  const auto* numbers = reinterpret_cast<const uint16_t*>(row + CodeBytes(storage, n));
  for (int64_t first = 0; first < n; first += kGroup, numbers += 2) {
    const int64_t in_group = std::min(kGroup, n - first);
    const auto* codes = reinterpret_cast<const uint8_t*>(row + CodeBytes(storage, first));
    if (storage == CacheStorage::kInt4) {
      uint16_t scales[kGroup], middles[kGroup];
      std::fill_n(scales, in_group, numbers[0]);
      std::fill_n(middles, in_group, numbers[1]);
      kernels.widen_int4(codes, scales, middles, x + first, in_group);
      continue;
    }
    const float scale = ToFloat(BFloat16{numbers[0]}), middle = ToFloat(BFloat16{numbers[1]});
    for (int64_t j = 0; j < in_group; ++j) {
      x[first + j] = middle + scale * static_cast<float>(static_cast<int8_t>(codes[j]));
    }
  }
}

void QuantizeKeys(const float* keys, int64_t ld, int64_t n, std::byte* codes, int64_t stride,
                  uint16_t* numbers) {
  std::vector<int8_t> all(kGroup * n);
  for (int64_t j = 0; j < n; ++j) {
    const Quantizer q(CacheStorage::kInt4, keys + j, kGroup, ld, numbers + j, numbers + n + j);
    for (int64_t i = 0; i < kGroup; ++i) all[i * n + j] = q.Code(keys[i * ld + j]);
  }
  for (int64_t i = 0; i < kGroup; ++i) {
    StoreCodes(CacheStorage::kInt4, absl::MakeConstSpan(all).subspan(i * n, n), codes + i * stride);
  }
}

}  // namespace lowkey
