#include "engine/attention/standard.h"

#include <algorithm>

#include "engine/attention/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {

AttentionWork SoftmaxWork(const AttentionGeometry& g, int64_t n_tokens) {
  const auto n = static_cast<double>(n_tokens);
  const double seen = std::min(n, static_cast<double>(g.sliding_window.value_or(n_tokens)));
  const auto pair = static_cast<double>(2 * g.n_layers * g.n_heads * g.head_dim);
  return {pair * seen * (n - seen / 2), pair * seen};
}

StandardAttention::StandardAttention(const AttentionContext& context)
    : context_(context), row_blocks_(context.pool->n_threads()) {
  for (RowBlock& b : row_blocks_) b.Reserve(context_.geometry);
}

int64_t StandardAttention::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  const int64_t n_pages = (bound.n_tokens + kPageTokens - 1) / kPageTokens;
  return n_pages * PageBytes(context_.geometry);
}

AttentionWork StandardAttention::Work(const AttentionOptions&, int64_t n_tokens) const {
  return SoftmaxWork(context_.geometry, n_tokens);
}

absl::Status StandardAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  tasks_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    LK_RETURN_IF_ERROR(TakePages(segments[i], *context_.cache));
    AppendRowBlocks(context_.geometry, static_cast<int32_t>(i), segments[i], {}, tasks_);
  }
  return absl::OkStatus();
}

void StandardAttention::Attend(const LayerRows& rows) {
  const AttentionGeometry& g = context_.geometry;
  WriteKv(g, segments_, rows, *context_.pool);
  context_.pool->ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t i, int thread) {
    const RowBlockTask& task = tasks_[i];
    const Segment& segment = segments_[task.segment];
    RowBlock& block = row_blocks_[thread];
    block.Begin(g, segment, task, rows);
    const int64_t end = block.last_position() + 1;
    const int64_t begin = g.sliding_window.has_value()
                              ? std::max<int64_t>(0, block.first_position() - *g.sliding_window + 1)
                              : 0;
    for (int64_t page = begin / kPageTokens; page * kPageTokens < end; ++page) {
      block.AddPage(TileOf(g, segment.sequence->pages, page, rows.layer, task.kv_head), page, end);
    }
    block.Finish(segment, task, rows);
  });
}

void StandardAttention::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
}

}  // namespace lowkey
