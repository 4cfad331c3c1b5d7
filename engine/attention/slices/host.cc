#include "engine/attention/slices/host.h"

#include <algorithm>
#include <utility>

#include "engine/attention/pages/column_pages.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The rows of Wa that are converted to floats at once.
constexpr int64_t kAlignRows = 8;

}  // namespace

HostSlices::HostSlices(Mechanism id, const AttentionContext& context)
    : SlicePolicy(id, context), scratch_(context.pool->n_threads()) {
  for (Scratch& s : scratch_) {
    s.block.Reserve(geometry_);
    s.keys.resize(geometry_.head_dim * kPageTokens);
  }
}

HostSlices::Tiles HostSlices::TilesOf(const SequenceCache& sequence, int64_t page, int64_t layer,
                                      int64_t head) const {
  std::byte* at = sequence.state.As<SliceState>().pages[page]->data() + layer * layer_bytes_;
  Tiles tiles;
  if (n_key_heads_ > 0) {
    tiles.keys = at + head * tile_bytes_;
  }
  at += n_key_heads_ * tile_bytes_;
  tiles.values = at + head * tile_bytes_;
  if (IsAligned()) {
    tiles.aligned = at + (geometry_.n_kv_heads + head) * tile_bytes_;
  }
  return tiles;
}

absl::Status HostSlices::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  tasks_.clear();
  align_tasks_.clear();
  int64_t n_pages = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const auto index = static_cast<int32_t>(i);
    LK_RETURN_IF_ERROR(TakeOwnPages(s));
    AppendRowBlocks(geometry_, index, s, {}, tasks_);
    n_pages = std::max(n_pages, PagesFor(s.first_position + s.n_rows));
    // An absolute grid makes a row always add up the same pages.
    const RowCuts grid{.every = kAlignRows, .max_tokens = kAlignRows};
    if (IsAligned()) AppendRowBlocks(geometry_, index, s, grid, align_tasks_);
  }
  GrowRotations(n_pages);
  if (!align_tasks_.empty()) {
    for (Scratch& s : scratch_) {
      s.align.resize(kAlignRows * (n_pages * kPageTokens + geometry_.head_dim));
    }
  }
  return absl::OkStatus();
}

void HostSlices::Write(const LayerRows& rows) {
  const AttentionGeometry& g = geometry_;
  const int64_t n_heads = n_key_heads_ + g.n_kv_heads;
  const auto n_tasks = static_cast<int64_t>(segments_.size()) * n_heads;
  context_.pool->ParallelFor(n_tasks, [&](int64_t task, int) {
    const Segment& s = segments_[task / n_heads];
    const int64_t head = task % n_heads;
    const bool is_key = head < n_key_heads_;
    // Keys come first in a page's layer, and values after them: `head` counts through both.
    const float* from =
        is_key ? rows.k + head * g.head_dim : rows.v + (head - n_key_heads_) * g.head_dim;
    const auto& pages = std::as_const(*s.sequence).state.As<SliceState>().pages;
    for (int64_t i = 0; i < s.n_rows; ++i) {
      const int64_t position = s.first_position + i;
      std::byte* tile =
          pages[position / kPageTokens]->data() + rows.layer * layer_bytes_ + head * tile_bytes_;
      WriteColumn(g, tile, position % kPageTokens, from + (s.first_row + i) * rows.ld_qkv);
    }
  });
}

void HostSlices::AlignRows(const RowBlockTask& task, int64_t layer, Scratch& scratch) {
  const AttentionGeometry& g = geometry_;
  const Segment& s = segments_[task.segment];
  const int64_t first = s.first_position + task.first_row;
  const int64_t n_pages = PagesFor(first + task.n_tokens);
  const int64_t ld = n_pages * kPageTokens;
  float* weights = scratch.align.data();
  float* out = weights + kAlignRows * ld;
  for (int64_t i = 0; i < task.n_tokens; ++i) {
    const int64_t row = first + i;
    LoadFloats(context_.weights->alignment[layer], row * (row + 1) / 2, row + 1, weights + i * ld);
    std::fill(weights + i * ld + row + 1, weights + (i + 1) * ld, 0.0f);
  }
  std::fill_n(out, task.n_tokens * g.head_dim, 0.0f);
  for (int64_t page = 0; page < n_pages; ++page) {
    const Tiles tiles = TilesOf(*s.sequence, page, layer, task.kv_head);
    Kernels().DotRows(g.cache_type, {weights + page * kPageTokens, ld, tiles.values, out,
                                     g.head_dim, task.n_tokens, g.head_dim, kPageTokens});
  }
  for (int64_t i = 0; i < task.n_tokens; ++i) {
    const int64_t row = first + i;
    const Tiles tiles = TilesOf(*s.sequence, row / kPageTokens, layer, task.kv_head);
    WriteColumn(g, tiles.aligned, row % kPageTokens, out + i * g.head_dim);
  }
}

void HostSlices::AttendRows(const LayerRows& rows, const RowBlockTask& task, Scratch& scratch) {
  const AttentionGeometry& g = geometry_;
  const Segment& segment = segments_[task.segment];
  RowBlock& block = scratch.block;
  block.Begin(g, segment, task, rows);
  const int64_t end = block.last_position() + 1;
  const int64_t begin = g.sliding_window.has_value()
                            ? std::max<int64_t>(0, block.first_position() - *g.sliding_window + 1)
                            : 0;
  for (int64_t page = begin / kPageTokens; page * kPageTokens < end; ++page) {
    const Tiles tiles = TilesOf(*segment.sequence, page, rows.layer, task.kv_head);
    ColumnTile tile{tiles.keys, g.cache_type,
                    tiles.aligned != nullptr ? tiles.aligned : tiles.values};
    if (tiles.keys == nullptr) {
      const float* cos = rotations_.data() + page * RotationFloats();
      const float* sin = cos + g.head_dim / 2 * kPageTokens;
      Kernels().RotateColumns(g.cache_type,
                              {tiles.values, cos, sin, scratch.keys.data(), g.head_dim});
      tile.keys = scratch.keys.data();
      tile.key_type = StorageType::kFloat32;
    }
    block.AddColumns(tile, page, end);
  }
  block.Finish(segment, task, rows);
}

void HostSlices::Attend(const LayerRows& rows) {
  Write(rows);
  const auto n_aligned = static_cast<int64_t>(align_tasks_.size());
  context_.pool->ParallelFor(n_aligned, [&](int64_t i, int thread) {
    AlignRows(align_tasks_[i], rows.layer, scratch_[thread]);
  });
  context_.pool->ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t i, int thread) {
    AttendRows(rows, tasks_[i], scratch_[thread]);
  });
}

}  // namespace lowkey
