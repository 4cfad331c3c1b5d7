#include "tests/engine/attention/toy_mechanism.h"

#include <algorithm>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {

int64_t PageMeanAttention::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  // A step's rows may begin with the last token of a page.
  const int64_t n_pages = std::min(PagesFor(bound.n_tokens), 1 + PagesFor(bound.max_step_rows - 1));
  return n_pages * PageBytes(context_.geometry);
}

AttentionWork PageMeanAttention::Work(const AttentionOptions&, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const auto token = static_cast<double>(g.n_layers * g.n_heads * g.head_dim * kPageTokens / 2);
  return {token * static_cast<double>(n_tokens), token};
}

absl::Status PageMeanAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  for (const Segment& s : segments) LK_RETURN_IF_ERROR(TakePages(s, *context_.cache));
  return absl::OkStatus();
}

void PageMeanAttention::Attend(const LayerRows& rows) {
  const AttentionGeometry& g = context_.geometry;
  WriteKv(g, segments_, rows, *context_.pool);
  for (const Segment& s : segments_) {
    context_.pool->ParallelFor(s.n_rows * g.n_heads, [&](int64_t i, int) {
      const int64_t row = i / g.n_heads, head = i % g.n_heads, position = s.first_position + row;
      const PageHandle& page = s.sequence->pages[position / kPageTokens];
      const int64_t n = position % kPageTokens + 1;
      std::vector<float> keys(n * g.head_dim), values(n * g.head_dim);
      ReadKv(g, TileOf(g, page, rows.layer, head / g.group()), {0, n}, keys.data(), values.data(),
             g.head_dim);
      float* out = rows.out + (s.first_row + row) * rows.ld_out + head * g.head_dim;
      for (int64_t j = 0; j < g.head_dim; ++j) {
        float sum = 0;
        for (int64_t t = 0; t < n; ++t) sum += values[t * g.head_dim + j];
        out[j] = sum / static_cast<float>(n);
      }
    });
  }
}

void PageMeanAttention::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
  const int64_t n_closed = sequence.n_tokens / kPageTokens;
  for (int64_t page = 0; page < n_closed; ++page) sequence.pages[page] = {};
}

}  // namespace lowkey
