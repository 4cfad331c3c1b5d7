#include "engine/attention/taylorshift/host.h"

#include <algorithm>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

float CachedKeyScale(const Segment& segment, const float* key, int64_t key_dim) {
  const bool plain = segment.sequence->options.taylorshift.variant == TaylorVariant::kPlain;
  return plain ? 1.0f : UnitScale(key, key_dim);
}

}  // namespace

HostTaylorShift::HostTaylorShift(const AttentionContext& context)
    : TaylorShiftPolicy(context),
      blocks_(context.pool->n_threads()),
      folders_(context.pool->n_threads()) {
  for (TaylorRows& b : blocks_) b.Reserve(context.geometry);
  for (TaylorFolder& f : folders_) f.Reserve(shape());
}

void HostTaylorShift::AppendFolds(RoundTasks& round, const FoldRange& range) const {
  for (int32_t head = 0; head < context().geometry.n_kv_heads; ++head) {
    for (int64_t tile = 0; tile < shape().n_tiles; ++tile) {
      round.folds.push_back({head, tile, range});
    }
  }
}

// Appends the range's rows for every KV head, as tasks within pages.
void HostTaylorShift::AppendReads(RoundTasks& round, const ReadRange& range) const {
  const AttentionGeometry& g = context().geometry;
  const int64_t end = range.first_position + range.n_tokens;
  for (int64_t first = range.first_position; first < end;) {
    const int64_t n =
        std::min({end - first, kPageTokens - first % kPageTokens, TaylorTaskTokens(g)});
    for (int32_t head = 0; head < g.n_kv_heads; ++head) {
      round.reads.push_back({range.segment, head, first, n, range.n_state_tokens,
                             FirstNearPage(first / kPageTokens)});
    }
    first += n;
  }
}

absl::Status HostTaylorShift::Plan(absl::Span<const Segment> segments) {
  LK_RETURN_IF_ERROR(TaylorShiftPolicy::Plan(segments));
  if (tasks_.size() < rounds().size()) tasks_.resize(rounds().size());
  for (size_t i = 0; i < rounds().size(); ++i) {
    tasks_[i].folds.clear();
    tasks_[i].reads.clear();
    for (const FoldRange& range : rounds()[i].folds) AppendFolds(tasks_[i], range);
    for (const ReadRange& range : rounds()[i].reads) AppendReads(tasks_[i], range);
  }
  return absl::OkStatus();
}

void HostTaylorShift::Fold(int64_t layer, const FoldTask& task, TaylorFolder& folder) const {
  const AttentionGeometry& g = context().geometry;
  const SequenceCache& sequence = *segments()[task.range.segment].sequence;
  const TaylorTile tile =
      TileOf(g, shape(), *sequence.state.As<TaylorState>().sums, layer, task.kv_head, task.tile);
  for (int64_t page = task.range.first_page; page < task.range.end_page; ++page) {
    const KvTile kv = TileOf(g, sequence.pages[page], layer, task.kv_head);
    folder.Fold(g, shape(), task.tile, kv, tile);
  }
}

void HostTaylorShift::Read(const LayerRows& rows, const TaylorRowsTask& task,
                           TaylorRows& block) const {
  const AttentionGeometry& g = context().geometry;
  const Segment& segment = segments()[task.segment];
  const SequenceCache& sequence = *segment.sequence;
  const std::shared_ptr<Slab>& sums = sequence.state.As<TaylorState>().sums;
  block.Begin(g, segment, task, rows, TemperaturesAt(rows.layer));
  for (int64_t tile = 0; task.n_state_tokens > 0 && tile < shape().n_tiles; ++tile) {
    block.AddState(shape(), tile, TileOf(g, shape(), *sums, rows.layer, task.kv_head, tile));
  }
  const int64_t own_page = task.first_position / kPageTokens;
  for (int64_t page = task.n_state_tokens / kPageTokens; page <= own_page; ++page) {
    const KvTile kv = TileOf(g, sequence.pages[page], rows.layer, task.kv_head);
    page < task.first_near_page ? block.AddPage(kv, page) : block.AddNearPage(kv, page);
  }
  block.Finish(segment, task, rows);
}

void HostTaylorShift::Attend(const LayerRows& rows) {
  WriteKv(context().geometry, segments(), rows, *context().pool, CachedKeyScale);
  for (size_t i = 0; i < rounds().size(); ++i) {
    const RoundTasks& round = tasks_[i];
    context().pool->ParallelFor(
        static_cast<int64_t>(round.folds.size()),
        [&](int64_t t, int thread) { Fold(rows.layer, round.folds[t], folders_[thread]); });
    // Latest rows first: in the direct form they read most.
    const auto n_reads = static_cast<int64_t>(round.reads.size());
    context().pool->ParallelFor(n_reads, [&](int64_t t, int thread) {
      Read(rows, round.reads[n_reads - 1 - t], blocks_[thread]);
    });
  }
}

}  // namespace lowkey
