#include "engine/attention/pages/column_pages.h"

#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"

namespace lowkey {

int64_t ColumnTileBytes(const AttentionGeometry& g) {
  return g.head_dim * kPageTokens * StorageBytes(g.cache_type);
}

absl::Status TakeSlabPages(const Segment& segment, int64_t page_bytes, Cache& cache,
                           std::vector<std::shared_ptr<Slab>>& pages) {
  const int64_t last = (segment.first_position + segment.n_rows - 1) / kPageTokens;
  for (int64_t i = segment.first_position / kPageTokens; i <= last; ++i) {
    const bool exists = i < static_cast<int64_t>(pages.size());
    std::shared_ptr<Slab> added;
    LK_RETURN_IF_ERROR(cache.MakeOwn(page_bytes, exists ? pages[i] : added));
    if (!exists) pages.push_back(std::move(added));
  }
  return absl::OkStatus();
}

void WriteColumn(const AttentionGeometry& g, std::byte* tile, int64_t slot, const float* x) {
  if (g.cache_type == StorageType::kFloat32) {
    float* out = reinterpret_cast<float*>(tile) + slot;
    for (int64_t j = 0; j < g.head_dim; ++j) out[j * kPageTokens] = x[j];
    return;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(tile) + slot;
  for (int64_t j = 0; j < g.head_dim; ++j) out[j * kPageTokens] = ToBFloat16(x[j]).bits;
}

void ReadColumn(const AttentionGeometry& g, const std::byte* tile, int64_t slot, float* x) {
  if (g.cache_type == StorageType::kFloat32) {
    const float* in = reinterpret_cast<const float*>(tile) + slot;
    for (int64_t j = 0; j < g.head_dim; ++j) x[j] = in[j * kPageTokens];
    return;
  }
  const uint16_t* in = reinterpret_cast<const uint16_t*>(tile) + slot;
  for (int64_t j = 0; j < g.head_dim; ++j) x[j] = ToFloat(BFloat16{in[j * kPageTokens]});
}

}  // namespace lowkey
