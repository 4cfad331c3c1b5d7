#include "engine/attention/slices/host.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/attention/pages/column_pages.h"
#include "engine/attention/standard/host.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Rows of Wa that are brought to floats at once.
constexpr int64_t kAlignRows = 8;

AttentionGeometry RowGeometry(const AttentionGeometry& g, const SliceSources& sources) {
  AttentionGeometry rows = g;
  if (sources.values == SliceSources::Values::kSlices) rows.n_kv_heads = g.n_heads;
  return rows;
}

}  // namespace

std::optional<SliceSources> SliceSourcesOf(Mechanism id, Mechanism over) {
  using Keys = SliceSources::Keys;
  using Values = SliceSources::Values;
  using Alignment = SliceSources::Alignment;
  switch (id) {
    case Mechanism::kOptimised:
      return SliceSources{Keys::kProjected, Values::kSlices, Alignment::kNone};
    case Mechanism::kEfficient:
      return SliceSources{Keys::kSlices, Values::kSlices, Alignment::kNone};
    case Mechanism::kSuper:  // attention.md "The mechanisms"
      return SliceSources{over == Mechanism::kEfficient ? Keys::kSlices : Keys::kProjected,
                          over == Mechanism::kStandard ? Values::kProjected : Values::kSlices,
                          Alignment::kTriangular};
    default:
      return std::nullopt;
  }
}

SliceAttention::SliceAttention(Mechanism id, const SliceSources& sources,
                               const AttentionContext& context)
    : id_(id),
      sources_(sources),
      context_(context),
      geometry_(RowGeometry(context.geometry, sources)),
      n_key_heads_(sources.keys == SliceSources::Keys::kProjected ? context.geometry.n_kv_heads
                                                                  : 0),
      tile_bytes_(ColumnTileBytes(context.geometry)),
      layer_bytes_(
          (n_key_heads_ + geometry_.n_kv_heads *
                              (sources.alignment == SliceSources::Alignment::kTriangular ? 2 : 1)) *
          tile_bytes_),
      scratch_(context.pool->n_threads()) {
  for (Scratch& s : scratch_) {
    s.block.Reserve(geometry_);
    s.keys.resize(geometry_.head_dim * kPageTokens);
  }
}

std::optional<int64_t> SliceAttention::max_tokens() const {
  if (sources_.alignment == SliceSources::Alignment::kNone) return std::nullopt;
  return context_.weights->alignment_tokens;
}

int64_t SliceAttention::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  return PagesFor(bound.n_tokens) * PageBytes();
}

SliceAttention::Tiles SliceAttention::TilesOf(const SequenceCache& sequence, int64_t page,
                                              int64_t layer, int64_t head) const {
  std::byte* at = sequence.slice_pages[page]->data() + layer * layer_bytes_;
  Tiles tiles;
  if (n_key_heads_ > 0) {
    tiles.keys = at + head / (geometry_.n_kv_heads / n_key_heads_) * tile_bytes_;
  }
  at += n_key_heads_ * tile_bytes_;
  tiles.values = at + head * tile_bytes_;
  if (sources_.alignment == SliceSources::Alignment::kTriangular) {
    tiles.aligned = at + (geometry_.n_kv_heads + head) * tile_bytes_;
  }
  return tiles;
}

void SliceAttention::PlanRotations(int64_t n_pages) {
  if (n_key_heads_ > 0) return;
  const std::vector<double>& frequencies = context_.weights->inverse_frequencies;
  const auto half = static_cast<int64_t>(frequencies.size());
  while (static_cast<int64_t>(rotations_.size()) < n_pages) {
    const auto first = static_cast<int64_t>(rotations_.size()) * kPageTokens;
    std::vector<float>& table = rotations_.emplace_back(2 * half * kPageTokens);
    for (int64_t j = 0; j < half; ++j) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        const double angle = static_cast<double>(first + t) * frequencies[j];
        table[j * kPageTokens + t] = static_cast<float>(std::cos(angle));
        table[(half + j) * kPageTokens + t] = static_cast<float>(std::sin(angle));
      }
    }
  }
}

AttentionWork SliceAttention::Work(const AttentionOptions&, int64_t n_tokens) const {
  AttentionWork work = SoftmaxWork(geometry_, n_tokens);
  const double all_pairs = SoftmaxWork(geometry_, 1).decode * static_cast<double>(n_tokens);
  if (n_key_heads_ == 0) work.decode *= 2;  // a key is rotated for every query that reads it
  if (sources_.alignment == SliceSources::Alignment::kTriangular) {
    work.prefill += all_pairs * static_cast<double>(n_tokens) / 4;  // V', half of what a pair costs
    work.decode += all_pairs / 2;
  }
  return work;
}

absl::Status SliceAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  tasks_.clear();
  align_tasks_.clear();
  int64_t n_pages = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& s = segments[i];
    const auto index = static_cast<int32_t>(i);
    LK_RETURN_IF_ERROR(TakeColumnPages(s, PageBytes(), *context_.cache));
    AppendRowBlocks(geometry_, index, s, {}, tasks_);
    n_pages = std::max(n_pages, PagesFor(s.first_position + s.n_rows));
    if (sources_.alignment == SliceSources::Alignment::kNone) continue;
    for (int64_t row = 0; row < s.n_rows;) {
      // On an absolute grid, so that a row always adds up the same pages.
      const int64_t n =
          std::min(kAlignRows - (s.first_position + row) % kAlignRows, s.n_rows - row);
      for (int32_t head = 0; head < geometry_.n_kv_heads; ++head) {
        align_tasks_.push_back({index, head, row, n});
      }
      row += n;
    }
  }
  PlanRotations(n_pages);
  if (!align_tasks_.empty()) {
    for (Scratch& s : scratch_) {
      s.align.resize(kAlignRows * (n_pages * kPageTokens + geometry_.head_dim));
    }
  }
  return absl::OkStatus();
}

void SliceAttention::Write(const LayerRows& rows) {
  const AttentionGeometry& g = geometry_;
  const bool slices = sources_.values == SliceSources::Values::kSlices;
  const int64_t n_heads = n_key_heads_ + g.n_kv_heads;
  const auto n_tasks = static_cast<int64_t>(segments_.size()) * n_heads;
  context_.pool->ParallelFor(n_tasks, [&](int64_t task, int) {
    const Segment& s = segments_[task / n_heads];
    const int64_t head = task % n_heads;
    const bool is_key = head < n_key_heads_;
    // Keys come first in a page's layer, and values after them: `head` counts through both.
    const float* from = is_key   ? rows.k + head * g.head_dim
                        : slices ? rows.x + (head - n_key_heads_) * g.head_dim
                                 : rows.v + (head - n_key_heads_) * g.head_dim;
    const int64_t ld = is_key || !slices ? rows.ld_qkv : rows.ld_x;
    for (int64_t i = 0; i < s.n_rows; ++i) {
      const int64_t position = s.first_position + i;
      std::byte* tile = s.sequence->slice_pages[position / kPageTokens]->data() +
                        rows.layer * layer_bytes_ + head * tile_bytes_;
      WriteColumn(g, tile, position % kPageTokens, from + (s.first_row + i) * ld);
    }
  });
}

void SliceAttention::AlignRows(const AlignTask& task, int64_t layer, Scratch& scratch) {
  const AttentionGeometry& g = geometry_;
  const Segment& s = segments_[task.segment];
  const int64_t first = s.first_position + task.first_row;
  const int64_t n_pages = PagesFor(first + task.n_rows);
  const int64_t ld = n_pages * kPageTokens;
  float* weights = scratch.align.data();
  float* out = weights + kAlignRows * ld;
  for (int64_t i = 0; i < task.n_rows; ++i) {
    const int64_t row = first + i;
    LoadFloats(context_.weights->alignment[layer], row * (row + 1) / 2, row + 1, weights + i * ld);
    std::fill(weights + i * ld + row + 1, weights + (i + 1) * ld, 0.0f);
  }
  std::fill_n(out, task.n_rows * g.head_dim, 0.0f);
  for (int64_t page = 0; page < n_pages; ++page) {
    const Tiles tiles = TilesOf(*s.sequence, page, layer, task.head);
    Kernels().DotRows(g.cache_type, {weights + page * kPageTokens, ld, tiles.values, out,
                                     g.head_dim, task.n_rows, g.head_dim, kPageTokens});
  }
  for (int64_t i = 0; i < task.n_rows; ++i) {
    const int64_t row = first + i;
    const Tiles tiles = TilesOf(*s.sequence, row / kPageTokens, layer, task.head);
    WriteColumn(g, tiles.aligned, row % kPageTokens, out + i * g.head_dim);
  }
}

void SliceAttention::AttendRows(const LayerRows& rows, const RowBlockTask& task, Scratch& scratch) {
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
      const float* cos = rotations_[page].data();
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

void SliceAttention::Attend(const LayerRows& rows) {
  Write(rows);
  const auto n_aligned = static_cast<int64_t>(align_tasks_.size());
  context_.pool->ParallelFor(n_aligned, [&](int64_t i, int thread) {
    AlignRows(align_tasks_[i], rows.layer, scratch_[thread]);
  });
  context_.pool->ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t i, int thread) {
    AttendRows(rows, tasks_[i], scratch_[thread]);
  });
}

void SliceAttention::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
}

std::optional<SequenceCache> SliceAttention::Prefix(const SequenceCache& sequence, int64_t,
                                                    int64_t n_tokens) const {
  auto pages = FirstPages(sequence.slice_pages, 0, n_tokens / kPageTokens);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.slice_pages = *std::move(pages);
  return prefix;
}

}  // namespace lowkey
