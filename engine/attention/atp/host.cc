#include "engine/attention/atp/host.h"

#include <algorithm>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The far scores that stay in L2. Rows that refine read them twice.
constexpr int64_t kFarScores = 128 * 1024;
// With this many tasks per thread, threads end at about the same time without spreading.
constexpr int64_t kTasksPerThread = 4;

}  // namespace

HostAtp::HostAtp(const AttentionContext& context)
    : AtpPolicy(context),
      row_blocks_(context.pool->n_threads()),
      far_rows_(context.pool->n_threads()),
      indexed_rows_(context.pool->n_threads()),
      scratch_(context.pool->n_threads()),
      workspaces_(context.pool->n_threads()) {}

int64_t HostAtp::ReserveRows(const Segment& segment) {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = segment.sequence->options.atp;
  int64_t n_tokens = MaxRowBlockTokens(g);
  FarTokens::Size size{0, o.block_tokens, o.refine_tokens};
  if (o.refine_tokens > 0) {
    const int64_t end = segment.first_position + segment.n_rows;
    size.n_far_tokens = FirstNearBlock(*segment.sequence, end) * o.block_tokens;
    n_tokens = std::clamp<int64_t>(kFarScores / std::max<int64_t>(1, size.n_far_tokens) / g.group(),
                                   1, n_tokens);
  }
  size.n_rows = n_tokens * g.group();
  for (RowBlock& b : row_blocks_) b.Reserve(g);
  const PrincipalShape shape = ShapeOf(g, o);
  if (shape.is_calibrated()) {
    for (IndexedRows& f : indexed_rows_) f.Reserve(g, shape, size);
    for (IndexedRows::Scratch& s : scratch_) s.Reserve(g, *index_, size);
    index_->turned_means().Grow(size.n_far_tokens / kPageTokens, turned_pages_);
  } else {
    for (PrincipalRows& f : far_rows_) f.Reserve(g, shape, size);
  }
  return n_tokens;
}

void HostAtp::PlanRows(int32_t segment_index, const Segment& segment) {
  // Rows of one task share their far blocks: cut where a row's far set changes.
  const AtpOptions& o = segment.sequence->options.atp;
  RowCuts cuts{o.block_tokens, std::nullopt, ReserveRows(segment)};
  if (o.prefill == AtpPrefill::kExact) cuts.at = segment.sequence->n_prompt_tokens;
  AppendRowBlocks(context_.geometry, segment_index, segment, cuts, row_tasks_);
}

void HostAtp::PlanMerges() {
  merge_tasks_.clear();
  const auto n_tasks = static_cast<int64_t>(compress_tasks_.size());
  for (int64_t first = 0, end = 0; first < n_tasks; first = end) {
    const CompressTask& task = compress_tasks_[first];
    while (end < n_tasks && compress_tasks_[end].segment == task.segment) ++end;
    if (!segments_[task.segment].sequence->options.atp.merge) continue;
    const int64_t n_bases = task.block->shape.n_bases(context_.geometry);
    for (int64_t i = 0; i < n_bases; ++i)
      merge_tasks_.push_back({first + i, (end - first) / n_bases});
  }
}

absl::Status HostAtp::Plan(absl::Span<const Segment> segments) {
  LK_RETURN_IF_ERROR(PlanCaches(segments));
  PlanMerges();
  row_tasks_.clear();
  for (size_t i = 0; i < segments.size(); ++i) PlanRows(static_cast<int32_t>(i), segments[i]);
  PlanSpread();
  return absl::OkStatus();
}

void HostAtp::CompressBlocks(int64_t layer) {
  const auto n_tasks = static_cast<int64_t>(compress_tasks_.size());
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
    const CompressTask& task = compress_tasks_[i];
    const SequenceCache& sequence = *segments_[task.segment].sequence;
    const int64_t n_pages = task.block->shape.n_tokens / kPageTokens;
    const int64_t first_page = task.number * n_pages;
    BlockTokens tokens{
        absl::MakeConstSpan(sequence.pages).subspan(first_page, n_pages), {}, first_page};
    if (sequence.options.atp.basis == AtpBasis::kInput) {
      tokens.inputs = absl::MakeConstSpan(sequence.state.As<AtpState>().input_pages)
                          .subspan(first_page, n_pages);
    }
    const CompressPart part{layer, task.kv_head};
    if (task.block->shape.is_calibrated()) {
      IndexLayer(context_.geometry, *index_, tokens, part, workspaces_[thread], *task.block);
    } else {
      CompressLayer(context_.geometry, sequence.options.atp, tokens, part, workspaces_[thread],
                    *task.block);
    }
  });
}

void HostAtp::MergeBlocks(int64_t layer) {
  const auto n_tasks = static_cast<int64_t>(merge_tasks_.size());
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
    const MergeTask& merge = merge_tasks_[i];
    const CompressTask* task = &compress_tasks_[merge.first_task];
    const int64_t n_bases = task->block->shape.n_bases(context_.geometry);
    for (int64_t b = 0; b < merge.n_blocks; ++b, task += n_bases) {
      const SequenceCache& sequence = *segments_[task->segment].sequence;
      const auto& blocks = sequence.state.As<AtpState>().blocks;
      for (int64_t size = 1; size < task->block->n_blocks; size *= 2) {
        MergeLayer(context_.geometry, sequence.options.atp, *blocks[task->number - size],
                   {layer, task->kv_head}, workspaces_[thread], *task->block);
      }
    }
  });
}

FarBlocks HostAtp::FarOf(const RowBlockTask& task, int64_t layer) const {
  const Segment& segment = segments_[task.segment];
  const SequenceCache& sequence = *segment.sequence;
  const int64_t near = FirstNearBlock(sequence, segment.first_position + task.first_row);
  const auto blocks = absl::MakeConstSpan(sequence.state.As<AtpState>().blocks).first(near);
  return {blocks, layer, task.kv_head};
}

IndexedBlocks HostAtp::IndexedOf(const RowBlockTask& task, int64_t layer) const {
  return {context_.geometry, *index_, FarOf(task, layer),
          segments_[task.segment].sequence->options.atp.refine_tokens, turned_pages_};
}

void HostAtp::PlanSpread() {
  const AttentionGeometry& g = context_.geometry;
  const auto n_tasks = static_cast<int64_t>(row_tasks_.size());
  const int n_threads = context_.pool->n_threads();
  is_spread_.assign(row_tasks_.size(), false);
  n_spread_ = 0;
  if (n_threads == 1 || n_tasks >= kTasksPerThread * n_threads) return;
  for (int32_t i = 0; i < n_tasks; ++i) {
    const RowBlockTask& task = row_tasks_[i];
    const AtpOptions& o = segments_[task.segment].sequence->options.atp;
    const FarBlocks far = FarOf(task, 0);
    if (o.basis != AtpBasis::kCalibrated || far.blocks.empty()) continue;
    const int64_t n_far = far.n_tokens(), n_parts = IndexedRows::NumParts(n_far);
    if (n_parts < 2) continue;
    if (spread_.size() == n_spread_) spread_.emplace_back();
    SpreadTask& spread = spread_[n_spread_++];
    const int64_t n_rows = task.n_tokens * g.group();
    spread.task = i, spread.n_parts = n_parts;
    spread.rows.Reserve(g, ShapeOf(g, o), {n_rows, n_far, o.refine_tokens});
    Grow(spread.near, n_rows * (g.head_dim_padded() + 2));
    is_spread_[i] = true;
  }
}

void HostAtp::BeginRows(const LayerRows& rows, const RowBlockTask& task, int thread) {
  RowBlock& block = row_blocks_[thread];
  const AttentionGeometry& g = context_.geometry;
  const Segment& segment = segments_[task.segment];
  const SequenceCache& sequence = *segment.sequence;
  const AtpOptions& o = sequence.options.atp;
  block.Begin(g, segment, task, rows);
  const int64_t end = block.last_position() + 1;
  const auto add_page = [&](int64_t page, int64_t visible_end) {
    block.AddPage(TileOf(g, sequence.pages, page, rows.layer, task.kv_head), page, visible_end);
  };
  const FarBlocks far = FarOf(task, rows.layer);
  if (!far.blocks.empty() && o.sinks > 0) add_page(0, o.sinks);
  if (o.readout == AtpReadout::kLinear) {
    far_rows_[thread].AddLinear(g, far, block);
  } else if (o.refine_tokens == 0) {
    far_rows_[thread].Add(g, far, block);
  }
  const auto near = static_cast<int64_t>(far.blocks.size());
  for (int64_t page = near * o.block_tokens / kPageTokens; page * kPageTokens < end; ++page) {
    add_page(page, end);
  }
}

void HostAtp::AttendRows(const LayerRows& rows, const RowBlockTask& task, int thread) {
  RowBlock& block = row_blocks_[thread];
  const AtpOptions& o = segments_[task.segment].sequence->options.atp;
  BeginRows(rows, task, thread);
  const FarBlocks far = FarOf(task, rows.layer);
  if (!far.blocks.empty() && o.basis == AtpBasis::kCalibrated) {
    indexed_rows_[thread].Add(IndexedOf(task, rows.layer), block, scratch_[thread]);
  } else if (!far.blocks.empty() && o.refine_tokens > 0) {
    far_rows_[thread].AddRefined(context_.geometry, far, o.refine_tokens, block);
  }
  block.Finish(segments_[task.segment], task, rows);
}

void HostAtp::ScoreSpread(const LayerRows& rows, SpreadTask& spread, int64_t part, int thread) {
  const RowBlockTask& task = row_tasks_[spread.task];
  const IndexedBlocks blocks = IndexedOf(task, rows.layer);
  RowBlock& block = row_blocks_[thread];
  if (part < 0) {
    BeginRows(rows, task, thread);
    block.SavePart(spread.near.data());
  } else {
    block.Begin(context_.geometry, segments_[task.segment], task, rows);
    spread.rows.ScorePart(blocks, part, block, scratch_[thread]);
  }
  if (spread.n_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  block.TakePart(spread.near.data());
  spread.rows.Choose(blocks, block);
  block.SavePart(spread.near.data());
  spread.n_left.store(spread.n_parts, std::memory_order_relaxed);
}

void HostAtp::ReadSpread(const LayerRows& rows, SpreadTask& spread, int64_t part, int thread) {
  const RowBlockTask& task = row_tasks_[spread.task];
  const IndexedBlocks blocks = IndexedOf(task, rows.layer);
  spread.rows.ReadPart(blocks, part, task.n_tokens * context_.geometry.group());
  if (spread.n_left.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  RowBlock& block = row_blocks_[thread];
  block.Begin(context_.geometry, segments_[task.segment], task, rows);
  block.TakePart(spread.near.data());
  spread.rows.Finish(blocks, block);
  block.Finish(segments_[task.segment], task, rows);
}

void HostAtp::AttendSpread(const LayerRows& rows) {
  // The parts of the tasks, one after the other; the first part of each reads exactly.
  int64_t most_parts = 0;
  for (size_t i = 0; i < n_spread_; ++i) {
    most_parts = std::max(most_parts, spread_[i].n_parts);
    spread_[i].n_left.store(spread_[i].n_parts + 1, std::memory_order_relaxed);
  }
  const auto n_spread = static_cast<int64_t>(n_spread_);
  context_.pool->ParallelFor(n_spread * (most_parts + 1), [&](int64_t i, int thread) {
    SpreadTask& spread = spread_[i / (most_parts + 1)];
    const int64_t part = i % (most_parts + 1) - 1;
    if (part < spread.n_parts) ScoreSpread(rows, spread, part, thread);
  });
  context_.pool->ParallelFor(n_spread * most_parts, [&](int64_t i, int thread) {
    SpreadTask& spread = spread_[i / most_parts];
    const int64_t part = i % most_parts;
    if (part < spread.n_parts) ReadSpread(rows, spread, part, thread);
  });
}

void HostAtp::Attend(const LayerRows& rows) {
  WriteKv(context_.geometry, segments_, rows, *context_.pool);
  WriteInputs(context_.geometry, segments_, rows, *context_.pool);
  CompressBlocks(rows.layer);
  MergeBlocks(rows.layer);
  const auto n_tasks = static_cast<int64_t>(row_tasks_.size());
  if (static_cast<int64_t>(n_spread_) < n_tasks) {
    context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
      if (!is_spread_[i]) AttendRows(rows, row_tasks_[i], thread);
    });
  }
  if (n_spread_ > 0) AttendSpread(rows);
}

}  // namespace lowkey
