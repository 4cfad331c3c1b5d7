#include "engine/attention/atp/input_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/attention/atp/policy.h"
#include "engine/base/dtype.h"

namespace lowkey {
namespace {

int64_t RowBytes(const AttentionGeometry& g) { return g.input_dim() * StorageBytes(g.cache_type); }

int64_t RowOffset(const AttentionGeometry& g, int64_t layer, int64_t slot) {
  return (layer * kPageTokens + slot) * RowBytes(g);
}

bool HasInputs(const Segment& s) { return s.sequence->options.atp.basis == AtpBasis::kInput; }

}  // namespace

int64_t InputPageBytes(const AttentionGeometry& g) {
  return g.n_layers * kPageTokens * RowBytes(g);
}

bool AnyHasInputs(absl::Span<const Segment> segments) {
  return std::any_of(segments.begin(), segments.end(), HasInputs);
}

void WriteInputs(const AttentionGeometry& g, absl::Span<const Segment> segments,
                 const LayerRows& rows, ThreadPool& pool) {
  if (!AnyHasInputs(segments)) return;
  pool.ParallelFor(static_cast<int64_t>(segments.size()), [&](int64_t task, int) {
    const Segment& s = segments[task];
    if (!HasInputs(s)) return;
    const auto& pages = std::as_const(*s.sequence).state.As<AtpState>().input_pages;
    for (int64_t i = 0; i < s.n_rows; ++i) {
      const int64_t position = s.first_position + i;
      const float* x = rows.x + (s.first_row + i) * rows.ld_x;
      std::byte* to =
          pages[position / kPageTokens]->data() + RowOffset(g, rows.layer, position % kPageTokens);
      if (g.cache_type == StorageType::kFloat32) {
        std::memcpy(to, x, static_cast<size_t>(RowBytes(g)));
      } else {
        Kernels().to_bf16(x, reinterpret_cast<uint16_t*>(to), g.input_dim());
      }
    }
  });
}

void ReadInputs(const AttentionGeometry& g, const Slab& page, int64_t layer, int64_t begin,
                float* out) {
  const std::byte* from = page.data() + RowOffset(g, layer, begin);
  const int64_t n = (kPageTokens - begin) * g.input_dim();
  if (g.cache_type == StorageType::kFloat32) {
    std::memcpy(out, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const auto* halves = reinterpret_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < n; ++i) out[i] = ToFloat(BFloat16{halves[i]});
}

}  // namespace lowkey
