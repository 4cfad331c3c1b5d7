#include "engine/attention/atp/device.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

// The number of thread blocks that fill a device: more tiles than that are not spread.
constexpr int64_t kManyBlocks = 512;
// The most floats of a batch (unless a single tile or task needs more).
constexpr int64_t kSlotFloats = int64_t{1} << 24;
constexpr int64_t kScoreFloats = int64_t{1} << 24;
constexpr int64_t kCompressFloats = int64_t{1} << 25;

AtpModel ModelOf(const AttentionGeometry& g) {
  return {g.n_layers,  g.n_kv_heads,        g.group(),   g.head_dim,
          DotWidth(g), g.head_dim_padded(), g.cache_type};
}

// Returns the bits per code; 0 means the cache's type.
int32_t BitsOf(AtpStorage storage) {
  return storage == AtpStorage::kCache ? 0 : storage == AtpStorage::kInt8 ? 8 : 4;
}

// Returns the floats of scratch that one task of these sizes takes.
int64_t TaskFloats(const AtpCompressArgs& s) {
  return s.m_stride + s.gram_stride + 2 * s.basis_stride + s.projected_stride + s.columns_stride;
}

// Returns the sizes after one more task.
AtpCompressArgs With(AtpCompressArgs s, const AtpCompressTask& t, int64_t rank) {
  s.max_n = std::max<int64_t>(s.max_n, t.n);
  s.max_cols = std::max<int64_t>(s.max_cols, t.n_cols);
  s.max_size = std::max<int64_t>(s.max_size, t.size);
  s.max_found = std::max<int64_t>(s.max_found, t.n_found);
  s.max_rank = std::max(s.max_rank, rank);
  s.max_heads = std::max<int64_t>(s.max_heads, t.n_heads);
  if (t.n > t.n_cols) s.max_left = std::max<int64_t>(s.max_left, t.n);
  s.m_stride = s.max_n * s.max_cols;
  s.gram_stride = s.max_size * s.max_size;
  s.basis_stride = s.max_found * std::max(s.max_n, s.max_size);
  s.projected_stride = s.max_found * s.max_cols;
  s.columns_stride = 2 * s.max_cols + 2 + s.max_rank;
  ++s.n_tasks;
  return s;
}

}  // namespace

bool DeviceAtp::Fits(const AttentionGeometry& g) {
  return g.head_dim % 2 == 0 && g.head_dim <= kAtpMostHeadDim && g.group() <= kAtpTileRows;
}

bool DeviceAtp::Serves(const AttentionOptions& options) {
  const AtpOptions& o = options.atp;
  double most_rank = HUGE_VAL;  // for ranks that depend on the data
  if (const auto* fixed = std::get_if<RankFixed>(&o.rank)) most_rank = fixed->rank;
  if (const auto* fraction = std::get_if<RankFraction>(&o.rank)) {
    most_rank = std::round(fraction->fraction * o.block_tokens);  // at most this share of the block
  }
  return most_rank <= kAtpMostRank && o.basis != AtpBasis::kInput &&
         o.basis != AtpBasis::kCalibrated && !PacksKeptTokens(o) &&
         o.decomposition == AtpDecomposition::kBlock;
}

DeviceAtp::DeviceAtp(const AttentionContext& context)
    : AtpPolicy(context),
      device_(*context.place->device),
      model_(ModelOf(context.geometry)),
      exact_(Mechanism::kStandard, context) {
  LK_CHECK(Fits(context.geometry));
}

absl::Status DeviceAtp::CheckAvailable(const AttentionOptions& options) const {
  LK_RETURN_IF_ERROR(AtpPolicy::CheckAvailable(options));
  const int64_t rank = ShapeOf(context_.geometry, options.atp).rank;
  const int64_t n_bytes = AtpSharedBytes(model_.head_dim, rank);
  const int64_t most = device_.most_shared_bytes();
  if (n_bytes <= most) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "attention.rank: blocks of rank ", rank, " with heads of ", model_.head_dim, " need ",
      n_bytes, " bytes of shared memory, expected at most the ", most, " of ", device_.name()));
}

int64_t DeviceAtp::SlotFloats() const {
  return model_.n_kv_heads * max_tile_rows_ * (model_.head_dim + 2);
}

void DeviceAtp::ClearTables() {
  exact_segments_.clear();
  WithTables(*this, [](auto&... tables) { (tables.clear(), ...); });
  batches_.clear();
  compress_batches_.clear();
  open_ = {};
  max_rank_ = max_tile_rows_ = max_refined_ = 0;
}

void DeviceAtp::AddSequence(const Segment& segment) {
  const AttentionGeometry& g = context_.geometry;
  const SequenceCache& sequence = *segment.sequence;
  const AtpOptions& o = sequence.options.atp;
  const PrincipalShape shape = ShapeOf(g, o);
  const bool is_linear = o.readout == AtpReadout::kLinear;
  sequences_.push_back({.first_page = pages_.n(),
                        .first_block = blocks_.n(),
                        .first_position = segment.first_position,
                        .first_row = segment.first_row,
                        .block_tokens = o.block_tokens,
                        .rank = shape.rank,
                        .n_sinks = o.sinks,
                        .n_bases = shape.n_bases(g),
                        .n_refined = o.refine_tokens,
                        .is_linear = is_linear,
                        .merges = o.merge,
                        .kept_bytes = shape.KeptBytes(g),
                        .part_bytes = shape.PartBytes(g, shape.rank),
                        .u_bytes = shape.UBytes(shape.rank),
                        .key_bytes = shape.KeyBytes(g, shape.rank),
                        .value_bytes = shape.ValueBytes(g, shape.rank),
                        .u_bits = is_linear ? 0 : BitsOf(o.basis_storage),
                        .principal_bits = BitsOf(o.principal_storage),
                        .kept_bits = shape.kept_type == StorageType::kInt8 ? 8 : 0});
  for (const PageHandle& page : sequence.pages) pages_.push_back(page ? page.data() : nullptr);
  for (const auto& block : sequence.state.As<AtpState>().blocks) {
    blocks_.push_back(block == nullptr ? nullptr : block->slab->data());
  }
}

int64_t DeviceAtp::NumExactRows(const Segment& segment) const {
  int64_t n = 0;
  while (n < segment.n_rows && FirstNearBlock(*segment.sequence, segment.first_position + n) == 0) {
    ++n;
  }
  return n;
}

AtpTile DeviceAtp::TileAt(int32_t index, const Segment& segment, int64_t row) const {
  const SequenceCache& sequence = *segment.sequence;
  const AtpOptions& o = sequence.options.atp;
  const int64_t position = segment.first_position + row, group = model_.group;
  AtpTile t;
  t.sequence = index;
  t.first = row * group;
  t.n_far_blocks = FirstNearBlock(sequence, position);
  const bool refines = o.refine_tokens > 0;
  // Rows of one tile share their far blocks and the tokens chosen of them.
  int64_t n = refines ? 1 : kAtpTileRows / group;
  n = std::min({n, segment.n_rows - row, o.block_tokens - position % o.block_tokens});
  t.n_rows = static_cast<int32_t>(n * group);
  t.n_far_parts = DivideUp(t.n_far_blocks, std::max<int64_t>(1, kAtpPartTokens / o.block_tokens));
  if (o.merge) t.n_far_parts = std::popcount(static_cast<uint64_t>(t.n_far_blocks));
  t.n_parts = t.n_far_parts + DivideUp(position + n, kAtpPartTokens) -
              t.n_far_blocks * o.block_tokens / kAtpPartTokens + (refines ? 1 : 0);
  return t;
}

void DeviceAtp::AddTiles(int32_t index, const Segment& segment) {
  for (int64_t row = NumExactRows(segment); row < segment.n_rows;) {
    const AtpTile t = TileAt(index, segment, row);
    const AtpSequence& s = sequences_[index];
    max_rank_ = std::max(max_rank_, s.rank);
    max_refined_ = std::max(max_refined_, s.n_refined);
    max_tile_rows_ = std::max<int64_t>(max_tile_rows_, t.n_rows);
    tiles_.push_back(t);
    row += t.n_rows / model_.group;
  }
}

// Adds entries that do nothing to the tables of the open batch of a step in which every sequence
// has one row: they make the launches of different steps equal.
void DeviceAtp::PadBatch() {
  constexpr AtpPartRun kNoRun{.tile = kAtpNoTile};
  PadTable(runs_, open_.runs.begin, kNoRun);
  PadTable(score_runs_, open_.scores.begin, kNoRun);
  PadTable(late_runs_, open_.late_runs.begin, kNoRun);
  PadTable(choices_, open_.choices.begin, kAtpNoTile);
  PadTable(combined_, open_.combined.begin, kAtpNoTile);
}

void DeviceAtp::CloseBatch() {
  if (decodes_) PadBatch();
  open_.runs.end = runs_.n();
  open_.scores.end = score_runs_.n();
  open_.choices.end = choices_.n();
  open_.late_runs.end = late_runs_.n();
  open_.combined.end = combined_.n();
  if (open_.runs.size() > 0) batches_.push_back(open_);
  const auto next = [](const TableRange& r) { return TableRange{r.end, r.end}; };
  open_ = {next(open_.runs), next(open_.scores), next(open_.choices), next(open_.late_runs),
           next(open_.combined)};
}

void DeviceAtp::AddSpread(int32_t tile) {
  AtpTile& t = tiles_[tile];
  const AtpSequence& s = sequences_[t.sequence];
  const bool refines = s.n_refined > 0;
  const int64_t n_scores =
      refines ? model_.n_kv_heads * t.n_rows * t.n_far_blocks * s.block_tokens : 0;
  if ((open_.n_slots + t.n_parts) * SlotFloats() > kSlotFloats ||
      open_.n_scores + n_scores > kScoreFloats) {
    CloseBatch();
  }
  t.first_slot = open_.n_slots;
  t.first_score = open_.n_scores;
  t.choice = choices_.n() - open_.choices.begin;
  open_.n_slots += t.n_parts;
  open_.n_scores += n_scores;
  for (int64_t part = 0; part < t.n_parts; ++part) {
    const bool is_late = refines && (part < t.n_far_parts || part == t.n_parts - 1);
    (is_late ? late_runs_ : runs_).push_back({tile, AtpInto::kSlot, part, 1});
  }
  combined_.push_back(tile);
  if (!refines) return;
  choices_.push_back(tile);
  const int64_t step = std::max<int64_t>(1, kAtpPartTokens / s.block_tokens);
  for (int64_t b = 0; b < t.n_far_blocks; b += step) {
    score_runs_.push_back({tile, AtpInto::kSlot, b, std::min(step, t.n_far_blocks - b)});
  }
}

void DeviceAtp::AddRuns() {
  const auto n_tiles = static_cast<int32_t>(tiles_.n());
  const bool spreads = n_tiles * model_.n_kv_heads < kManyBlocks;
  for (int32_t i = 0; i < n_tiles; ++i) {
    const AtpTile& t = tiles_[i];
    if (sequences_[t.sequence].n_refined > 0 || (spreads && t.n_parts > 1)) {
      AddSpread(i);
    } else {
      runs_.push_back({i, AtpInto::kOutput, 0, t.n_parts});
    }
  }
  CloseBatch();
}

void DeviceAtp::AddTask(const CompressTask& of, AtpCompressTask t, CompressBatch& open) {
  const int64_t rank = of.block->shape.rank;
  t.sequence = of.segment;
  t.number = static_cast<int32_t>(of.number);
  t.size = std::min(t.n, t.n_cols);
  t.n_found = static_cast<int32_t>(std::min<int64_t>(rank, t.size));
  const AtpCompressArgs wider = With(open.sizes, t, rank);
  if (wider.n_tasks * TaskFloats(wider) > kCompressFloats) CloseTasks(open);
  open.sizes = With(open.sizes, t, rank);
  tasks_.push_back(t);
}

void DeviceAtp::CloseTasks(CompressBatch& open) {
  const int64_t end = tasks_.n();
  open.tasks = {end - open.sizes.n_tasks, end};
  if (open.sizes.n_tasks > 0) compress_batches_.push_back(open);
  open.sizes = {};
}

void DeviceAtp::AddCompression() {
  const AttentionGeometry& g = context_.geometry;
  CompressBatch open;
  for (const CompressTask& task : compress_tasks_) {
    const PrincipalShape& shape = task.block->shape;
    AtpCompressTask t;
    t.kv_head = task.kv_head;
    t.n_heads = static_cast<int32_t>(g.n_kv_heads / shape.n_bases(g));
    t.n = static_cast<int32_t>(shape.n_tokens);
    if (task.number == 0) t.n -= static_cast<int32_t>(task.block->n_sinks);
    t.n_cols = static_cast<int32_t>(shape.n_basis_columns(g));
    AddTask(task, t, open);
  }
  CloseTasks(open);
}

// Merges blocks of one size at a time: a larger block is made of two finished ones.
void DeviceAtp::AddMerging() {
  const AttentionGeometry& g = context_.geometry;
  int64_t most = 1;
  for (const CompressTask& task : compress_tasks_) most = std::max(most, task.block->n_blocks);
  for (int64_t size = 1; size < most; size *= 2) {
    CompressBatch open;
    open.kernel = &DeviceKernels::atp_merge;
    for (const CompressTask& task : compress_tasks_) {
      if (task.block->n_blocks <= size) continue;
      const PrincipalShape& shape = task.block->shape;
      const int64_t n_heads = g.n_kv_heads / shape.n_bases(g);
      for (int64_t head = 0; head < n_heads; ++head) {
        AtpCompressTask t;
        t.kv_head = static_cast<int32_t>(task.kv_head + head);
        t.n_heads = 1;
        t.n_merged = static_cast<int32_t>(size);
        t.n = static_cast<int32_t>(2 * shape.rank + 1);
        t.n_cols = static_cast<int32_t>(2 * g.head_dim);
        AddTask(task, t, open);
      }
    }
    CloseTasks(open);
  }
}

absl::Status DeviceAtp::Prepare() {
  int64_t n_slots = 0, n_scores = 0, n_choices = 0, n_compress = 0;
  for (const Batch& b : batches_) {
    n_slots = std::max(n_slots, b.n_slots);
    n_scores = std::max(n_scores, b.n_scores);
    n_choices = std::max(n_choices, b.choices.size());
  }
  for (const CompressBatch& b : compress_batches_) {
    n_compress = std::max(n_compress, b.sizes.n_tasks * TaskFloats(b.sizes));
  }
  constexpr int64_t kBytes = sizeof(float);
  const auto grow = [&](int64_t n_floats, int64_t usual_floats, Buffer& buffer) {
    return GrowOnDevice(device_, n_floats * kBytes, buffer, usual_floats * kBytes);
  };
  LK_RETURN_IF_ERROR(grow(n_slots * SlotFloats(), kSlotFloats, slots_));
  LK_RETURN_IF_ERROR(grow(n_scores, kScoreFloats, scores_));
  LK_RETURN_IF_ERROR(grow(n_scores, kScoreFloats, weights_));
  LK_RETURN_IF_ERROR(
      GrowOnDevice(device_, n_choices * model_.n_kv_heads * max_refined_ * kBytes, chosen_));
  LK_RETURN_IF_ERROR(grow(n_compress, kCompressFloats, compress_scratch_));
  if (decodes_) PadTable(cache_slots_);
  n_rows_ = cache_slots_.n();
  // Nobody reads the added entries: a table that grows by little leaves the others in place.
  WithTables(*this,
             [](auto&... tables) { (tables.resize(std::bit_ceil(tables.size() + 1)), ...); });
  LK_RETURN_IF_ERROR(
      WithTables(*this, [&](auto&... tables) { return tables_.Upload(device_, tables...); }));
  page_slots_ = {tables_.At(cache_slots_), n_rows_, model_.type};
  return absl::OkStatus();
}

absl::Status DeviceAtp::Plan(absl::Span<const Segment> segments) {
  ClearTables();
  LK_RETURN_IF_ERROR(PlanCaches(segments));
  decodes_ = IsDecodeStep(segments);
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    AddSequence(segments[i]);
    AddTiles(index, segments[i]);
    Segment exact = segments[i], others = segments[i];
    exact.n_rows = NumExactRows(exact);
    if (exact.n_rows > 0) exact_segments_.push_back(exact);
    others.first_position += exact.n_rows;
    others.first_row += exact.n_rows;
    others.n_rows -= exact.n_rows;
    AppendSlots(others, cache_slots_);
  }
  LK_RETURN_IF_ERROR(exact_.Plan(exact_segments_));
  AddRuns();
  AddCompression();
  AddMerging();
  return Prepare();
}

std::optional<uint64_t> DeviceAtp::PlanKey() const {
  if (!decodes_ || !compress_batches_.empty()) return std::nullopt;
  std::vector<int64_t> numbers = {n_rows_, max_rank_, max_tile_rows_, max_refined_};
  if (!exact_segments_.empty()) {
    const std::optional<uint64_t> exact = exact_.PlanKey();
    if (!exact.has_value()) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(*exact));
  }
  // The addresses of everything, and what is launched.
  numbers.push_back(AddressOf(tables_.data()));
  WithTables(*this, [&](const auto&... tables) { (numbers.push_back(tables.offset), ...); });
  for (const Buffer* b : {&slots_, &scores_, &weights_, &chosen_}) {
    numbers.push_back(AddressOf(b->data()));
  }
  for (const Batch& b : batches_) {
    for (const TableRange& r : {b.runs, b.scores, b.choices, b.late_runs, b.combined}) {
      numbers.insert(numbers.end(), {r.begin, r.end});
    }
  }
  return KeyOf(numbers);
}

AtpReadArgs DeviceAtp::ReadArgs(const LayerRows& rows) const {
  // The scratch belongs to the step.
  const auto scratch = [](const Buffer& b) { return const_cast<float*>(b.as<float>()); };
  return {.model = model_,
          .sequences = tables_.At(sequences_),
          .tiles = tables_.At(tiles_),
          .pages = tables_.At(pages_),
          .blocks = tables_.At(blocks_),
          .layer = rows.layer,
          .max_rank = max_rank_,
          .max_tile_rows = max_tile_rows_,
          .q = rows.q,
          .ld = rows.ld_qkv,
          .out = rows.out,
          .ld_out = rows.ld_out,
          .slots = scratch(slots_),
          .scores = scratch(scores_),
          .weights = scratch(weights_),
          .chosen = const_cast<int32_t*>(chosen_.as<int32_t>()),
          .max_refined = max_refined_};
}

void DeviceAtp::Compress(int64_t layer) {
  for (const CompressBatch& b : compress_batches_) {
    AtpCompressArgs a = b.sizes;
    a.model = model_;
    a.sequences = tables_.At(sequences_);
    a.pages = tables_.At(pages_);
    a.blocks = tables_.At(blocks_);
    a.tasks = tables_.At(tasks_, b.tasks.begin);
    a.layer = layer;
    a.m = compress_scratch_.as<float>();
    a.gram = a.m + a.n_tasks * a.m_stride;
    a.basis = a.gram + a.n_tasks * a.gram_stride;
    a.image = a.basis + a.n_tasks * a.basis_stride;
    a.projected = a.image + a.n_tasks * a.basis_stride;
    a.columns = a.projected + a.n_tasks * a.projected_stride;
    (device_.kernels().*b.kernel)(device_, a);
  }
}

void DeviceAtp::AttendBatch(const Batch& b, const AtpReadArgs& read) {
  const DeviceKernels& kernels = device_.kernels();
  const auto runs = [&](const PlanTable<AtpPartRun>& table, const TableRange& range) {
    return AtpAttendArgs{read, tables_.At(table, range.begin), range.size()};
  };
  kernels.atp_attend(device_, runs(runs_, b.runs));
  if (b.scores.size() > 0) {
    kernels.atp_score(device_, runs(score_runs_, b.scores));
    kernels.atp_choose(device_, {read, tables_.At(choices_, b.choices.begin), b.choices.size()});
    kernels.atp_attend(device_, runs(late_runs_, b.late_runs));
  }
  if (b.combined.size() > 0) {
    kernels.atp_combine(device_,
                        {read, tables_.At(combined_, b.combined.begin), b.combined.size()});
  }
}

const CacheSlots* DeviceAtp::PageWrites() const {
  if (exact_segments_.empty()) return &page_slots_;
  return n_rows_ == 0 ? exact_.PageWrites() : nullptr;
}

void DeviceAtp::Attend(const LayerRows& rows) {
  // Both mechanisms write their own rows' keys and values; exact rows see none of the others.
  if (rows.k != nullptr) {
    device_.kernels().write_kv(device_, {page_slots_, rows.layer, model_.n_kv_heads,
                                         model_.head_dim, rows.k, rows.v, rows.ld_qkv});
  }
  if (!exact_segments_.empty()) exact_.Attend(rows);
  Compress(rows.layer);
  const AtpReadArgs read = ReadArgs(rows);
  for (const Batch& b : batches_) AttendBatch(b, read);
}

}  // namespace lowkey
