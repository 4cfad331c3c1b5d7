#include "engine/attention/atp/host.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/attention/atp/input_pages.h"
#include "engine/attention/pages/column_pages.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Rows that refine read all far scores twice: as many as stay in L2.
constexpr int64_t kFarScores = 128 * 1024;

// Blocks that a merged block of this number stands for.
int64_t MergedBlocks(int64_t number) { return (number + 1) & -(number + 1); }

// The most blocks held at once. Merged: one for each bit of the number of far blocks, and those
// that are not far yet.
int64_t MostBlocks(const AtpOptions& o, const SequenceBound& bound) {
  const int64_t n = bound.n_tokens / o.block_tokens;
  if (!o.merge) return n;
  const int64_t far = std::bit_width(static_cast<uint64_t>(n));
  return std::min(n, far + o.window_blocks + bound.max_step_rows / o.block_tokens + 1);
}

// Blocks of a plan that was never carried out hold nothing: later ones must not take them for
// compressed.
void DropUnfilledBlocks(const Segment& segment) {
  auto& blocks = segment.sequence->blocks;
  const int64_t n_filled = segment.first_position / segment.sequence->options.atp.block_tokens;
  if (static_cast<int64_t>(blocks.size()) > n_filled) blocks.resize(n_filled);
}

}  // namespace

int64_t FirstNearBlock(const SequenceCache& sequence, int64_t position) {
  const AtpOptions& o = sequence.options.atp;
  if (o.prefill == AtpPrefill::kExact && position < sequence.n_prompt_tokens) return 0;
  return std::max<int64_t>(0, position / o.block_tokens - o.window_blocks);
}

AtpAttention::AtpAttention(const AttentionContext& context)
    : context_(context),
      row_blocks_(context.pool->n_threads()),
      far_rows_(context.pool->n_threads()),
      workspaces_(context.pool->n_threads()) {}

absl::Status AtpAttention::CheckAvailable(const AttentionOptions&) const {
  if (!context_.geometry.sliding_window.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "attention.mechanism: atp is not available for a model with a sliding window of ",
      *context_.geometry.sliding_window, " tokens"));
}

int64_t AtpAttention::BoundBytes(const AttentionOptions& options,
                                 const SequenceBound& bound) const {
  const AtpOptions& o = options.atp;
  const int64_t block_pages = o.block_tokens / kPageTokens;
  // The sinks' page, the window, and a step's rows from the last token of a block on.
  const int64_t near_pages = (o.sinks > 0 ? 1 : 0) + o.window_blocks * block_pages +
                             PagesFor(o.block_tokens - 1 + bound.max_step_rows);
  int64_t n_pages = std::min(PagesFor(bound.n_tokens), near_pages);
  if (o.prefill == AtpPrefill::kExact) {
    n_pages = std::max(n_pages, PagesFor(std::min(bound.n_prompt_tokens + 1, bound.n_tokens)));
  }
  // Of the open block and the step.
  const int64_t n_input_pages =
      o.basis != AtpBasis::kInput
          ? 0
          : std::min(PagesFor(bound.n_tokens), block_pages + PagesFor(bound.max_step_rows) + 1);
  const PrincipalShape shape = ShapeOf(context_.geometry, o);
  return n_pages * PageBytes(context_.geometry) +
         n_input_pages * InputPageBytes(context_.geometry) +
         MostBlocks(o, bound) * shape.SlabBytes(context_.geometry);
}

absl::Status AtpAttention::PlanBlocks(int32_t segment_index, const Segment& segment) {
  SequenceCache& sequence = *segment.sequence;
  const AtpOptions& o = sequence.options.atp;
  const PrincipalShape shape = ShapeOf(context_.geometry, o);
  const int64_t n_closed = (segment.first_position + segment.n_rows) / o.block_tokens;
  DropUnfilledBlocks(segment);
  sequence.blocks.reserve(n_closed);
  const auto first_task = static_cast<int64_t>(compress_tasks_.size());
  const int64_t n_bases = shape.n_bases(context_.geometry);
  while (static_cast<int64_t>(sequence.blocks.size()) < n_closed) {
    auto block = std::make_shared<PrincipalBlock>();
    block->shape = shape;
    const auto number = static_cast<int64_t>(sequence.blocks.size());
    if (o.merge) block->n_blocks = MergedBlocks(number);
    block->n_sinks = number < block->n_blocks ? o.sinks : 0;
    LK_RETURN_IF_ERROR(block->Allocate(context_.geometry, number, *context_.cache));
    for (int64_t head = 0; head < n_bases; ++head) {
      compress_tasks_.push_back({segment_index, static_cast<int32_t>(head), block.get(), number});
    }
    sequence.blocks.push_back(std::move(block));
  }
  const auto n_tasks = static_cast<int64_t>(compress_tasks_.size()) - first_task;
  for (int64_t head = 0; o.merge && head < std::min(n_tasks, n_bases); ++head) {
    merge_tasks_.push_back({first_task + head, n_tasks / n_bases});
  }
  return absl::OkStatus();
}

int64_t AtpAttention::ReserveRows(const Segment& segment) {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = segment.sequence->options.atp;
  int64_t n_tokens = MaxRowBlockTokens(g);
  PrincipalRows::Size size{0, o.block_tokens, o.refine_tokens};
  if (o.refine_tokens > 0) {
    const int64_t end = segment.first_position + segment.n_rows;
    size.n_far_tokens = FirstNearBlock(*segment.sequence, end) * o.block_tokens;
    n_tokens = std::clamp<int64_t>(kFarScores / std::max<int64_t>(1, size.n_far_tokens) / g.group(),
                                   1, n_tokens);
  }
  size.n_rows = n_tokens * g.group();
  for (RowBlock& b : row_blocks_) b.Reserve(g);
  for (PrincipalRows& f : far_rows_) f.Reserve(g, ShapeOf(g, o), size);
  return n_tokens;
}

absl::Status AtpAttention::PlanCache(int32_t segment_index, const Segment& segment) {
  LK_RETURN_IF_ERROR(TakePages(segment, *context_.cache));
  if (segment.sequence->options.atp.basis == AtpBasis::kInput) {
    LK_RETURN_IF_ERROR(
        TakeColumnPages(segment, InputPageBytes(context_.geometry), *context_.cache));
  }
  return PlanBlocks(segment_index, segment);
}

void AtpAttention::PlanRows(int32_t segment_index, const Segment& segment) {
  // Rows of one block of tasks share their far blocks: cut where a row's far set changes.
  const AtpOptions& o = segment.sequence->options.atp;
  RowCuts cuts{o.block_tokens, std::nullopt, ReserveRows(segment)};
  if (o.prefill == AtpPrefill::kExact) cuts.at = segment.sequence->n_prompt_tokens;
  AppendRowBlocks(context_.geometry, segment_index, segment, cuts, row_tasks_);
}

AttentionWork AtpAttention::Work(const AttentionOptions& options, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = options.atp;
  const PrincipalShape shape = ShapeOf(g, o);
  const auto n = static_cast<double>(n_tokens);
  const auto block = static_cast<double>(o.block_tokens);
  const auto heads = static_cast<double>(g.n_layers * g.n_heads);
  // On average the open block is half full.
  const double near = std::min(n, o.sinks + (o.window_blocks + 0.5) * block);
  const double far = n - near;
  const auto rank = static_cast<double>(shape.rank), d = static_cast<double>(g.head_dim);
  // Scores and values of the principal keys, and U there and back (Eq. 7).
  double far_blocks = far / block;
  if (o.merge) far_blocks = std::log2(1 + far_blocks);
  const double far_work =
      heads * 2 * rank * (far_blocks * d + (o.readout == AtpReadout::kExact ? far : 0));
  AttentionWork work;
  work.decode = heads * 2 * near * d + far_work;
  const auto columns = static_cast<double>(shape.n_basis_columns(g));
  const double bases = static_cast<double>(g.n_layers * shape.n_bases(g));
  const double compress = bases * 2 * block * columns * std::min(block, columns);
  const double exact = heads * n * n * d;
  // A block is merged once, on average, in every head.
  const double rows = 2 * rank + 1, width = 2 * d;
  const double kv_heads = static_cast<double>(g.n_layers * g.n_kv_heads);
  const double merge = o.merge ? kv_heads * 2 * rows * width * std::min(rows, width) : 0;
  work.prefill =
      (o.prefill == AtpPrefill::kExact ? exact : n * (work.decode + near * heads * d) / 2) +
      n / block * (compress + merge);
  return work;
}

absl::Status AtpAttention::PlanCaches(absl::Span<const Segment> segments) {
  segments_ = segments;
  compress_tasks_.clear();
  merge_tasks_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    const absl::Status status = PlanCache(static_cast<int32_t>(i), segments[i]);
    if (status.ok()) continue;
    for (const Segment& s : segments.first(i + 1)) DropUnfilledBlocks(s);
    return status;
  }
  return absl::OkStatus();
}

absl::Status AtpAttention::Plan(absl::Span<const Segment> segments) {
  LK_RETURN_IF_ERROR(PlanCaches(segments));
  row_tasks_.clear();
  for (size_t i = 0; i < segments.size(); ++i) PlanRows(static_cast<int32_t>(i), segments[i]);
  return absl::OkStatus();
}

void AtpAttention::CompressBlocks(int64_t layer) {
  const auto n_tasks = static_cast<int64_t>(compress_tasks_.size());
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
    const CompressTask& task = compress_tasks_[i];
    const SequenceCache& sequence = *segments_[task.segment].sequence;
    const int64_t n_pages = task.block->shape.n_tokens / kPageTokens;
    const int64_t first_page = task.number * n_pages;
    BlockTokens tokens{absl::MakeConstSpan(sequence.pages).subspan(first_page, n_pages)};
    if (sequence.options.atp.basis == AtpBasis::kInput) {
      tokens.inputs = absl::MakeConstSpan(sequence.slice_pages).subspan(first_page, n_pages);
    }
    CompressLayer(context_.geometry, sequence.options.atp, tokens, {layer, task.kv_head},
                  workspaces_[thread], *task.block);
  });
}

void AtpAttention::MergeBlocks(int64_t layer) {
  const auto n_tasks = static_cast<int64_t>(merge_tasks_.size());
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int thread) {
    const MergeTask& merge = merge_tasks_[i];
    const CompressTask* task = &compress_tasks_[merge.first_task];
    const int64_t n_bases = task->block->shape.n_bases(context_.geometry);
    for (int64_t b = 0; b < merge.n_blocks; ++b, task += n_bases) {
      const SequenceCache& sequence = *segments_[task->segment].sequence;
      for (int64_t size = 1; size < task->block->n_blocks; size *= 2) {
        MergeLayer(context_.geometry, sequence.options.atp, *sequence.blocks[task->number - size],
                   {layer, task->kv_head}, workspaces_[thread], *task->block);
      }
    }
  });
}

void AtpAttention::AttendRows(const LayerRows& rows, const RowBlockTask& task, int thread) {
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
  const FarBlocks far{absl::MakeConstSpan(sequence.blocks).first(near), rows.layer, task.kv_head};
  if (near > 0 && o.sinks > 0) add_page(0, o.sinks);
  if (o.readout == AtpReadout::kLinear) {
    far_rows_[thread].AddLinear(g, far, block);
  } else if (o.refine_tokens == 0) {
    far_rows_[thread].Add(g, far, block);
  }
  for (int64_t page = near * o.block_tokens / kPageTokens; page * kPageTokens < end; ++page) {
    add_page(page, end);
  }
  if (near > 0 && o.refine_tokens > 0) {
    far_rows_[thread].AddRefined(g, far, o.refine_tokens, block);
  }
  block.Finish(segment, task, rows);
}

void AtpAttention::Attend(const LayerRows& rows) {
  WriteKv(context_.geometry, segments_, rows, *context_.pool);
  WriteInputs(context_.geometry, segments_, rows, *context_.pool);
  CompressBlocks(rows.layer);
  MergeBlocks(rows.layer);
  context_.pool->ParallelFor(static_cast<int64_t>(row_tasks_.size()), [&](int64_t i, int thread) {
    AttendRows(rows, row_tasks_[i], thread);
  });
}

// Frees blocks that another stands for in every row and merge to come.
void AtpAttention::FreeMerged(SequenceCache& sequence) const {
  const AtpOptions& o = sequence.options.atp;
  const int64_t n_far = sequence.n_tokens / o.block_tokens - o.window_blocks;
  for (int64_t number = 0; number < n_far; ++number) {
    if (number + 1 + MergedBlocks(number) <= n_far) sequence.blocks[number] = nullptr;
  }
}

void AtpAttention::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
  for (const CompressTask& task : compress_tasks_) {
    // Those of other sequences may be gone.
    if (segments_[task.segment].sequence != &sequence) continue;
    const bool last = task.kv_head == task.block->shape.n_bases(context_.geometry) - 1;
    if (last) task.block->Trim(context_.geometry);
  }
  const AtpOptions& o = sequence.options.atp;
  if (o.merge) FreeMerged(sequence);
  const auto n_closed = static_cast<int64_t>(sequence.blocks.size());
  const int64_t open_page = n_closed * o.block_tokens / kPageTokens;
  for (int64_t page = 0; o.basis == AtpBasis::kInput && page < open_page; ++page) {
    sequence.slice_pages[page] = nullptr;
  }
  const int64_t near = FirstNearBlock(sequence, sequence.n_tokens);
  const int64_t end = near * o.block_tokens / kPageTokens;
  for (int64_t page = o.sinks > 0 ? 1 : 0; page < end; ++page) sequence.pages[page] = {};
}

std::optional<SequenceCache> AtpAttention::Prefix(const SequenceCache& sequence, int64_t,
                                                  int64_t n_tokens) const {
  // Later rows saw the prompt compressed, which rows of a longer prompt would not have.
  if (n_tokens > sequence.n_prompt_tokens) return std::nullopt;
  const AtpOptions& o = sequence.options.atp;
  const int64_t n_pages = n_tokens / kPageTokens, n_closed = n_tokens / o.block_tokens;
  const int64_t near =
      o.prefill == AtpPrefill::kExact ? 0 : std::max<int64_t>(0, n_closed - o.window_blocks);
  auto pages = FirstPages(sequence.pages, near * o.block_tokens / kPageTokens, n_pages);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.pages = *std::move(pages);
  if (near > 0 && o.sinks > 0) {
    if (!sequence.pages[0]) return std::nullopt;
    prefix.pages[0] = sequence.pages[0];
  }
  if (o.basis == AtpBasis::kInput) {
    auto inputs =
        FirstPages(sequence.slice_pages, n_closed * o.block_tokens / kPageTokens, n_pages);
    if (!inputs.has_value()) return std::nullopt;
    prefix.slice_pages = *std::move(inputs);
  }
  auto blocks = FirstPages(sequence.blocks, 0, n_closed);
  if (blocks.has_value()) {
    prefix.blocks = *std::move(blocks);
  } else if (near > 0 || o.basis == AtpBasis::kInput) {
    return std::nullopt;  // what they were made from is gone
  }
  return prefix;
}

}  // namespace lowkey
