#include "engine/attention/pages/paged_kv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

float LoadElement(const std::byte* p, StorageType type, int64_t i) {
  if (type == StorageType::kFloat32) return reinterpret_cast<const float*>(p)[i];
  return ToFloat(BFloat16{reinterpret_cast<const uint16_t*>(p)[i]});
}

// Writes n numbers as elements of a page.
void Store(const float* x, int64_t n, float* out) { std::copy_n(x, n, out); }
void Store(const float* x, int64_t n, uint16_t* out) { Kernels().to_bf16(x, out, n); }

template <typename T>
void WriteToken(const AttentionGeometry& g, const KvTile& tile, int64_t slot, float scale,
                const float* k, const float* v) {
  constexpr int64_t kChunk = 64;
  T* keys = reinterpret_cast<T*>(tile.keys) + slot;
  for (int64_t first = 0; first < g.key_dim(); first += kChunk) {
    const int64_t n = std::min(kChunk, g.key_dim() - first);
    std::array<float, kChunk> scaled;
    std::array<T, kChunk> column;
    for (int64_t j = 0; j < n; ++j) scaled[j] = scale * k[first + j];
    Store(scaled.data(), n, column.data());
    for (int64_t j = 0; j < n; ++j) keys[(first + j) * kPageTokens] = column[j];
  }
  T* values = reinterpret_cast<T*>(tile.values) + slot * g.head_dim_padded();
  Store(v, g.head_dim, values);
  std::fill(values + g.head_dim, values + g.head_dim_padded(), T{});
}

// A run is rows [begin, end) of a segment whose tokens lie in one page.
struct Run {
  const Segment* segment;
  int64_t begin, end;
};

std::vector<Run> RunsOf(absl::Span<const Segment> segments) {
  std::vector<Run> runs;
  for (const Segment& s : segments) {
    for (int64_t begin = 0, end = 0; begin < s.n_rows; begin = end) {
      end = std::min(s.n_rows, begin + kPageTokens - (s.first_position + begin) % kPageTokens);
      runs.push_back({&s, begin, end});
    }
  }
  return runs;
}

void WriteRun(const AttentionGeometry& g, const Run& run, const LayerRows& rows, int64_t head,
              KeyScale key_scale) {
  const Segment& s = *run.segment;
  const auto write =
      g.cache_type == StorageType::kFloat32 ? WriteToken<float> : WriteToken<uint16_t>;
  for (int64_t i = run.begin; i < run.end; ++i) {
    const int64_t position = s.first_position + i, row = s.first_row + i;
    const PageHandle& page = s.sequence->pages[position / kPageTokens];
    const KvTile tile = TileOf(g, page, rows.layer, head);
    const float* key = rows.k + row * rows.ld_qkv + head * g.key_dim();
    const float scale = key_scale == nullptr ? 1.0f : key_scale(s, key, g.key_dim());
    const float* value = rows.v + row * rows.ld_qkv + head * g.head_dim;
    write(g, tile, position % kPageTokens, scale, key, value);
  }
}

}  // namespace

int64_t DotWidth(const AttentionGeometry& g) {
  constexpr int64_t kStep = 32;
  return RoundUp(g.head_dim, kStep);
}

KvTile TileOf(const AttentionGeometry& g, std::byte* page, int64_t layer, int64_t kv_head) {
  const int64_t key_bytes = kPageTokens * g.key_dim() * StorageBytes(g.cache_type);
  const int64_t value_bytes = kPageTokens * g.head_dim_padded() * StorageBytes(g.cache_type);
  std::byte* tile = page + (layer * g.n_kv_heads + kv_head) * (key_bytes + value_bytes);
  return {tile, tile + key_bytes};
}

KvTile TileOf(const AttentionGeometry& g, absl::Span<const PageHandle> pages, int64_t page,
              int64_t layer, int64_t kv_head) {
  KvTile tile = TileOf(g, pages[page], layer, kv_head);
  const auto next = static_cast<size_t>(page) + 1;
  if (next < pages.size() && pages[next]) tile.next = TileOf(g, pages[next], layer, kv_head).keys;
  return tile;
}

absl::Status TakePages(const Segment& segment, int64_t page_bytes, Cache& cache) {
  std::vector<PageHandle>& pages = segment.sequence->pages;
  const int64_t last = (segment.first_position + segment.n_rows - 1) / kPageTokens;
  for (int64_t i = segment.first_position / kPageTokens; i <= last; ++i) {
    if (i < static_cast<int64_t>(pages.size()) && pages[i].unique()) continue;
    LK_ASSIGN_OR_RETURN(PageHandle page, cache.AllocatePage(page_bytes));
    if (i < static_cast<int64_t>(pages.size())) {
      cache.Copy(pages[i].data(), page.data(), page_bytes);
      pages[i] = std::move(page);
    } else {
      pages.push_back(std::move(page));
    }
  }
  return absl::OkStatus();
}

void WriteKv(const AttentionGeometry& g, absl::Span<const Segment> segments, const LayerRows& rows,
             ThreadPool& pool, KeyScale key_scale) {
  const std::vector<Run> runs = RunsOf(segments);
  const auto n_tasks = static_cast<int64_t>(runs.size()) * g.n_kv_heads;
  pool.ParallelFor(n_tasks, [&](int64_t task, int) {
    WriteRun(g, runs[task / g.n_kv_heads], rows, task % g.n_kv_heads, key_scale);
  });
}

void ReadKeys(const AttentionGeometry& g, const KvTile& tile, float* keys) {
  const int64_t n = g.key_dim() * kPageTokens;
  if (g.cache_type == StorageType::kFloat32) {
    std::memcpy(keys, tile.keys, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const auto* from = reinterpret_cast<const uint16_t*>(tile.keys);
  for (int64_t i = 0; i < n; ++i) keys[i] = ToFloat(BFloat16{from[i]});
}

void ReadKv(const AttentionGeometry& g, const KvTile& tile, const PageSlots& slots, float* keys,
            float* values, int64_t ld) {
  for (int64_t j = 0; j < g.key_dim(); ++j) {
    for (int64_t i = slots.begin; i < slots.end; ++i) {
      keys[(i - slots.begin) * ld + j] = LoadElement(tile.keys, g.cache_type, j * kPageTokens + i);
    }
  }
  for (int64_t i = slots.begin; i < slots.end; ++i, values += ld) {
    for (int64_t j = 0; j < g.head_dim; ++j) {
      values[j] = LoadElement(tile.values, g.cache_type, i * g.head_dim_padded() + j);
    }
  }
}

}  // namespace lowkey
