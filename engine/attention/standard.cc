#include "engine/attention/standard.h"

#include <algorithm>

#include "engine/attention/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kSpanPages = 16;
// With so many tasks threads end at the same time anyway.
constexpr int64_t kTasksPerThread = 16;

}  // namespace

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
  PlanParts();
  return absl::OkStatus();
}

void StandardAttention::PlanParts() {
  const AttentionGeometry& g = context_.geometry;
  const bool spreads =
      static_cast<int64_t>(tasks_.size()) < kTasksPerThread * context_.pool->n_threads();
  parts_.clear();
  spread_.clear();
  int64_t n_saved = 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const RowBlockTask& task = tasks_[i];
    const int64_t first = segments_[task.segment].first_position + task.first_row;
    const int64_t begin =
        g.sliding_window.has_value() ? std::max<int64_t>(0, first - *g.sliding_window + 1) : 0;
    const int64_t first_page = begin / kPageTokens, end_page = PagesFor(first + task.n_tokens);
    const auto n = static_cast<int32_t>(i);
    if (!spreads || first_page / kSpanPages == (end_page - 1) / kSpanPages) {
      parts_.push_back({n, first_page, end_page, std::nullopt});
      continue;
    }
    spread_.push_back(static_cast<int32_t>(parts_.size()));
    for (int64_t page = first_page; page < end_page;) {
      const int64_t end = std::min(end_page, (page / kSpanPages + 1) * kSpanPages);
      parts_.push_back({n, page, end, n_saved});
      n_saved += task.n_tokens * g.group() * (g.head_dim_padded() + 2);
      page = end;
    }
  }
  if (static_cast<int64_t>(saved_.size()) < n_saved) saved_.resize(n_saved);
}

void StandardAttention::ReadPages(const LayerRows& rows, const Part& part, RowBlock& block) const {
  const AttentionGeometry& g = context_.geometry;
  const RowBlockTask& task = tasks_[part.task];
  const Segment& segment = segments_[task.segment];
  block.Begin(g, segment, task, rows);
  const int64_t end = block.last_position() + 1;
  for (int64_t page = part.first_page; page < part.end_page; ++page) {
    if (page % kSpanPages == 0 && page > part.first_page) block.Fold();
    block.AddPage(TileOf(g, segment.sequence->pages, page, rows.layer, task.kv_head), page, end);
  }
}

void StandardAttention::Attend(const LayerRows& rows) {
  WriteKv(context_.geometry, segments_, rows, *context_.pool);
  context_.pool->ParallelFor(static_cast<int64_t>(parts_.size()), [&](int64_t i, int thread) {
    const Part& part = parts_[i];
    RowBlock& block = row_blocks_[thread];
    ReadPages(rows, part, block);
    if (part.saved.has_value()) {
      block.SavePart(saved_.data() + *part.saved);
    } else {
      block.Finish(segments_[tasks_[part.task].segment], tasks_[part.task], rows);
    }
  });
  Join(rows);
}

void StandardAttention::Join(const LayerRows& rows) {
  context_.pool->ParallelFor(static_cast<int64_t>(spread_.size()), [&](int64_t i, int thread) {
    size_t part = spread_[i];
    const int32_t number = parts_[part].task;
    const RowBlockTask& task = tasks_[number];
    RowBlock& block = row_blocks_[thread];
    block.Begin(context_.geometry, segments_[task.segment], task, rows);
    for (; part < parts_.size() && parts_[part].task == number; ++part) {
      block.FoldPart(saved_.data() + *parts_[part].saved);
    }
    block.Finish(segments_[task.segment], task, rows);
  });
}

void StandardAttention::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
}

}  // namespace lowkey
