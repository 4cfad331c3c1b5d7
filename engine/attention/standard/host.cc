#include "engine/attention/standard/host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kSpreadPages = 16;
// With this many tasks per thread, threads end at the same time without spreading.
constexpr int64_t kTasksPerThread = 16;
// Larger blocks leave this many for each thread, and are not spread.
constexpr int64_t kBlocksPerThread = 4;

}  // namespace

HostStandard::HostStandard(Mechanism id, const AttentionContext& context)
    : StandardPolicy(id, context), row_blocks_(context.pool->n_threads()) {
  for (RowBlock& b : row_blocks_)
    b.Reserve(context_.geometry, MaxPageBlockTokens(context_.geometry));
}

absl::Status HostStandard::PlanPages(int32_t segment_index, const Segment& segment) {
  LK_RETURN_IF_ERROR(TakePages(segment, PageBytes(context_.geometry), *context_.cache));
  if (!IsQuantized(segment.sequence->options)) return absl::OkStatus();
  const SequenceCache& sequence = *segment.sequence;
  LK_RETURN_IF_ERROR(TakeClosedPages(
      segment, QuantizedPageBytes(context_.geometry, sequence.options.standard.storage)));
  const auto end = static_cast<int64_t>(sequence.state.As<StandardState>().closed_pages.size());
  for (int64_t page = segment.first_position / kPageTokens; page < end; ++page) {
    close_tasks_.push_back({segment_index, page});
  }
  return absl::OkStatus();
}

absl::Status HostStandard::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  tasks_.clear();
  close_tasks_.clear();
  const AttentionGeometry& g = context_.geometry;
  int64_t n_rows = 0;
  for (const Segment& segment : segments) n_rows += segment.n_rows;
  const int64_t block_tokens =
      std::clamp(n_rows * g.n_kv_heads / (kBlocksPerThread * context_.pool->n_threads()),
                 MaxRowBlockTokens(g), MaxPageBlockTokens(g));
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    LK_RETURN_IF_ERROR(PlanPages(index, segments[i]));
    RowCuts cuts{.max_tokens = block_tokens};
    if (IsQuantized(segments[i].sequence->options)) cuts.every = kPageTokens;
    AppendRowBlocks(g, index, segments[i], cuts, tasks_);
  }
  const bool has_large = std::any_of(tasks_.begin(), tasks_.end(), [&](const RowBlockTask& task) {
    return task.n_tokens > MaxRowBlockTokens(g);
  });
  PlanParts(has_large ? kBlocksPerThread : kTasksPerThread);
  return absl::OkStatus();
}

void HostStandard::ClosePages(int64_t layer) {
  const AttentionGeometry& g = context_.geometry;
  const auto n_tasks = static_cast<int64_t>(close_tasks_.size()) * g.n_kv_heads;
  context_.pool->ParallelFor(n_tasks, [&](int64_t i, int) {
    const CloseTask& task = close_tasks_[i / g.n_kv_heads];
    const int64_t head = i % g.n_kv_heads;
    const SequenceCache& sequence = *segments_[task.segment].sequence;
    QuantizeTile(g, sequence.options.standard.storage,
                 TileOf(g, sequence.pages[task.page], layer, head), layer, head,
                 *sequence.state.As<StandardState>().closed_pages[task.page]);
  });
}

void HostStandard::PlanParts(int64_t enough_tasks) {
  const AttentionGeometry& g = context_.geometry;
  const bool spreads =
      static_cast<int64_t>(tasks_.size()) < enough_tasks * context_.pool->n_threads();
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
    if (!spreads || first_page / kSpreadPages == (end_page - 1) / kSpreadPages) {
      parts_.push_back({n, first_page, end_page, std::nullopt});
      continue;
    }
    spread_.push_back(static_cast<int32_t>(parts_.size()));
    for (int64_t page = first_page; page < end_page;) {
      const int64_t end = std::min(end_page, (page / kSpreadPages + 1) * kSpreadPages);
      parts_.push_back({n, page, end, n_saved});
      n_saved += task.n_tokens * g.group() * (g.head_dim_padded() + 2);
      page = end;
    }
  }
  if (static_cast<int64_t>(saved_.size()) < n_saved) saved_.resize(n_saved);
}

const std::byte* HostStandard::FirstTile(const LayerRows& rows, size_t part) const {
  if (part >= parts_.size()) return nullptr;
  const RowBlockTask& task = tasks_[parts_[part].task];
  const SequenceCache& sequence = *segments_[task.segment].sequence;
  if (IsQuantized(sequence.options)) return nullptr;
  const PageHandle& page = sequence.pages[parts_[part].first_page];
  return TileOf(context_.geometry, page, rows.layer, task.kv_head).keys;
}

void HostStandard::ReadPages(const LayerRows& rows, size_t number, RowBlock& block) const {
  const Part& part = parts_[number];
  const AttentionGeometry& g = context_.geometry;
  const RowBlockTask& task = tasks_[part.task];
  const Segment& segment = segments_[task.segment];
  block.Begin(g, segment, task, rows);
  const SequenceCache& sequence = *segment.sequence;
  const CacheStorage storage = sequence.options.standard.storage;
  const auto& closed = sequence.state.As<StandardState>().closed_pages;
  const auto quantized = [&](int64_t page) {
    return QuantizedTileOf(g, storage, *closed[page], rows.layer, task.kv_head);
  };
  const int64_t end = block.last_position() + 1;
  const int64_t n_closed = IsQuantized(sequence.options) ? block.first_position() / kPageTokens : 0;
  for (int64_t page = part.first_page; page < part.end_page; ++page) {
    if (page % kSpreadPages == 0 && page > part.first_page) block.Fold();
    if (page < n_closed) {
      block.AddQuantized(quantized(page), quantized(std::min(page + 1, n_closed - 1)), page);
    } else {
      KvTile tile = TileOf(g, sequence.pages, page, rows.layer, task.kv_head);
      if (page + 1 == part.end_page) tile.next = FirstTile(rows, number + 1);
      block.AddPage(tile, page, end);
    }
  }
}

void HostStandard::Attend(const LayerRows& rows) {
  WriteKv(context_.geometry, segments_, rows, *context_.pool);
  ClosePages(rows.layer);
  context_.pool->ParallelFor(static_cast<int64_t>(parts_.size()), [&](int64_t i, int thread) {
    const Part& part = parts_[i];
    RowBlock& block = row_blocks_[thread];
    ReadPages(rows, i, block);
    if (part.saved.has_value()) {
      block.SavePart(saved_.data() + *part.saved);
    } else {
      block.Finish(segments_[tasks_[part.task].segment], tasks_[part.task], rows);
    }
  });
  Join(rows);
}

void HostStandard::Join(const LayerRows& rows) {
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

std::optional<PieceShape> HostStandard::piece_shape(const AttentionOptions& options) const {
  if (id() != Mechanism::kStandard) return std::nullopt;
  const AttentionGeometry& g = context_.geometry;
  return PieceShape{kPageTokens, IsQuantized(options)
                                     ? QuantizedPageBytes(g, options.standard.storage)
                                     : PageBytes(g)};
}

absl::Span<const std::byte> HostStandard::PieceBytes(const SequenceCache& prefix, int64_t i) const {
  const std::byte* const data = IsQuantized(prefix.options)
                                    ? prefix.state.As<StandardState>().closed_pages[i]->data()
                                    : prefix.pages[i].data();
  return {data, static_cast<size_t>(piece_shape(prefix.options)->max_bytes)};
}

absl::Status HostStandard::AppendPiece(SequenceCache& prefix, absl::Span<const std::byte> bytes) {
  const int64_t expected = piece_shape(prefix.options)->max_bytes;
  if (static_cast<int64_t>(bytes.size()) != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("page: ", bytes.size(), " bytes, expected ", expected));
  }
  PageHandle page;
  if (IsQuantized(prefix.options)) {
    LK_ASSIGN_OR_RETURN(auto slab, context_.cache->AllocateSlab(expected));
    std::copy(bytes.begin(), bytes.end(), slab->data());
    prefix.state.As<StandardState>().closed_pages.push_back(std::move(slab));
  } else {
    LK_ASSIGN_OR_RETURN(page, context_.cache->AllocatePage());
    std::copy(bytes.begin(), bytes.end(), page.data());
  }
  prefix.pages.push_back(std::move(page));
  prefix.n_tokens += kPageTokens;
  return absl::OkStatus();
}

}  // namespace lowkey
