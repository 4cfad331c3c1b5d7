#include "engine/attention/atp/host.h"

#include <algorithm>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The far scores that stay in L2. Rows that refine read them twice.
constexpr int64_t kFarScores = 128 * 1024;

// Whether rows read all far blocks together, after everything that they read exactly.
bool ReadsFarAtOnce(const AtpOptions& o) {
  return o.refine_tokens > 0 || o.basis == AtpBasis::kCalibrated;
}

}  // namespace

HostAtp::HostAtp(const AttentionContext& context)
    : AtpPolicy(context),
      row_blocks_(context.pool->n_threads()),
      far_rows_(context.pool->n_threads()),
      indexed_rows_(context.pool->n_threads()),
      workspaces_(context.pool->n_threads()) {}

int64_t HostAtp::ReserveRows(const Segment& segment) {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = segment.sequence->options.atp;
  int64_t n_tokens = MaxRowBlockTokens(g);
  FarTokens::Size size{0, o.block_tokens, o.refine_tokens};
  if (ReadsFarAtOnce(o)) {
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
  return absl::OkStatus();
}

void HostAtp::CompressBlocks(int64_t layer) {
  const auto n_tasks = static_cast<int64_t>(compress_tasks_.size());
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
    const CompressTask& task = compress_tasks_[i];
    const SequenceCache& sequence = *segments_[task.segment].sequence;
    const int64_t n_pages = task.block->shape.n_tokens / kPageTokens;
    const int64_t first_page = task.number * n_pages;
    BlockTokens tokens{absl::MakeConstSpan(sequence.pages).subspan(first_page, n_pages)};
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

void HostAtp::AttendRows(const LayerRows& rows, const RowBlockTask& task, int thread) {
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
  const int64_t near = FirstNearBlock(sequence, block.first_position());
  const FarBlocks far{absl::MakeConstSpan(sequence.state.As<AtpState>().blocks).first(near),
                      rows.layer, task.kv_head};
  if (near > 0 && o.sinks > 0) add_page(0, o.sinks);
  if (o.readout == AtpReadout::kLinear) {
    far_rows_[thread].AddLinear(g, far, block);
  } else if (!ReadsFarAtOnce(o)) {
    far_rows_[thread].Add(g, far, block);
  }
  for (int64_t page = near * o.block_tokens / kPageTokens; page * kPageTokens < end; ++page) {
    add_page(page, end);
  }
  if (near > 0 && o.basis == AtpBasis::kCalibrated) {
    indexed_rows_[thread].Add(g, *index_, far, o.refine_tokens, block);
  } else if (near > 0 && o.refine_tokens > 0) {
    far_rows_[thread].AddRefined(g, far, o.refine_tokens, block);
  }
  block.Finish(segment, task, rows);
}

void HostAtp::Attend(const LayerRows& rows) {
  WriteKv(context_.geometry, segments_, rows, *context_.pool);
  WriteInputs(context_.geometry, segments_, rows, *context_.pool);
  CompressBlocks(rows.layer);
  MergeBlocks(rows.layer);
  context_.pool->ParallelFor(static_cast<int64_t>(row_tasks_.size()), [&](int64_t i, int thread) {
    AttendRows(rows, row_tasks_[i], thread);
  });
}

}  // namespace lowkey
