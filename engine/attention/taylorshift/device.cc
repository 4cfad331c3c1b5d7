#include "engine/attention/taylorshift/device.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

// Of a wave's slots, unless one block needs more.
constexpr int64_t kWaveBytes = int64_t{64} << 20;

}  // namespace

DeviceTaylorShift::DeviceTaylorShift(const AttentionContext& context)
    : TaylorShiftPolicy(context), device_(*context.place->device) {}

int64_t DeviceTaylorShift::SlotFloats() const {
  return context().geometry.n_kv_heads * (shape().n_columns + 4);
}

void DeviceTaylorShift::AddSequence(const Segment& segment) {
  const SequenceCache& sequence = *segment.sequence;
  const auto& state = sequence.state.As<TaylorState>();
  TaylorSequence s;
  s.first_position = segment.first_position;
  s.first_row = segment.first_row;
  s.first_query = static_cast<int64_t>(rows_.size());
  s.first_page = state.n_state_tokens / kPageTokens;
  s.first_page_entry = static_cast<int64_t>(pages_.size());
  if (state.sums != nullptr) s.state = reinterpret_cast<float*>(state.sums->data());
  s.is_normalized = sequence.options.taylorshift.variant == TaylorVariant::kNormalized;
  for (int64_t row = 0; row < segment.n_rows; ++row) {
    rows_.push_back({static_cast<int32_t>(sequences_.size()), static_cast<int32_t>(row)});
  }
  for (size_t page = s.first_page; page < sequence.pages.size(); ++page) {
    pages_.push_back(sequence.pages[page].data());
  }
  sequences_.push_back(s);
}

void DeviceTaylorShift::AddPiece(List list, const TaylorPiece& piece) {
  pieces_[list].push_back(piece);
}

void DeviceTaylorShift::BeginWave() {
  Wave& wave = waves_.emplace_back();
  wave.blocks.begin = static_cast<int64_t>(blocks_.size());
  for (int i = 0; i < kLists; ++i) {
    wave.pieces[i].begin = static_cast<int64_t>(pieces_[i].size());
  }
}

void DeviceTaylorShift::EndWave() {
  Wave& wave = waves_.back();
  wave.blocks.end = static_cast<int64_t>(blocks_.size());
  for (int i = 0; i < kLists; ++i) wave.pieces[i].end = static_cast<int64_t>(pieces_[i].size());
}

void DeviceTaylorShift::AddBlock(const ReadRange& range, int64_t first_row, int64_t n_rows) {
  const AttentionGeometry& g = context().geometry;
  const int64_t first_position = segments()[range.segment].first_position;
  const int64_t last = first_position + (first_row + n_rows - 1) / g.group();
  const bool is_few = n_rows <= kTaylorFewRows;
  // Many rows keep threads busy with pieces that are as long as can be.
  const bool in_one_piece = !is_few && TaylorHasTiles(StepShape());
  const bool has_state = range.n_state_tokens > 0;
  const int64_t slice = in_one_piece ? shape().n_features : TaylorSliceFeatures(g.head_dim);
  const int64_t n_slices = has_state ? (shape().n_features + slice - 1) / slice : 0;
  const int64_t first_page = range.n_state_tokens / kPageTokens, end_page = last / kPageTokens + 1;
  const int64_t span = in_one_piece ? end_page : kTaylorSpanPages;
  const int64_t first_span = first_page / span, end_span = (end_page - 1) / span + 1;

  TaylorBlock block;
  block.sequence = range.segment;
  block.n_rows = static_cast<int32_t>(n_rows);
  block.first_row = first_row;
  block.n_slots = n_slices + end_span - first_span;
  block.n_state_slots = n_slices;
  const int64_t n_slots = block.n_slots * n_rows;
  const int64_t most = kWaveBytes / (SlotFloats() * static_cast<int64_t>(sizeof(float)));
  if (waves_.back().n_slots > 0 && waves_.back().n_slots + n_slots > most) {
    EndWave();
    BeginWave();
  }
  Wave& wave = waves_.back();
  block.first_slot = wave.n_slots;
  wave.n_slots += n_slots;
  wave.max_rows = std::max(wave.max_rows, n_rows);
  const auto index = static_cast<int32_t>(blocks_.size());
  int32_t slot = 0;
  for (; slot < n_slices; ++slot) {
    const int64_t end = std::min((slot + 1) * slice, shape().n_features);
    AddPiece(is_few ? kFewState : kManyState,
             {index, slot, static_cast<int32_t>(slot * slice), static_cast<int32_t>(end)});
  }
  for (int64_t i = first_span; i < end_span; ++i, ++slot) {
    const int64_t begin = std::max(i * span, first_page);
    const int64_t end = std::min((i + 1) * span, end_page);
    AddPiece(is_few ? kFewPages : kManyPages,
             {index, slot, static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  }
  blocks_.push_back(block);
}

void DeviceTaylorShift::AddReads(const ReadRange& range) {
  const int64_t group = context().geometry.group();
  const Segment& segment = segments()[range.segment];
  const int64_t first = (range.first_position - segment.first_position) * group;
  const int64_t end = first + range.n_tokens * group;
  for (int64_t row = first; row < end; row += kTaylorManyRows) {
    AddBlock(range, row, std::min(kTaylorManyRows, end - row));
  }
}

absl::Status DeviceTaylorShift::TakeMemory() {
  const AttentionGeometry& g = context().geometry;
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  if (tau_there_.size_bytes() == 0) {
    const auto n_bytes = static_cast<int64_t>(tau().size()) * kFloatBytes;
    LK_RETURN_IF_ERROR(GrowOnDevice(device_, n_bytes, tau_there_));
    device_.Upload(tau().data(), tau_there_.data(), n_bytes);
  }
  const int64_t n_rows = std::max(context().place->max_rows, static_cast<int64_t>(rows_.size()));
  LK_RETURN_IF_ERROR(
      GrowOnDevice(device_, n_rows * g.n_heads * g.head_dim * kFloatBytes, queries_));
  int64_t n_slots = 0;
  for (const Wave& wave : waves_) n_slots = std::max(n_slots, wave.n_slots);
  return GrowOnDevice(device_, n_slots * SlotFloats() * kFloatBytes, slots_);
}

// Of all that Attend's launches are made of.
void DeviceTaylorShift::MakeKey() {
  key_.reset();
  for (const Segment& s : segments()) {
    if (s.n_rows != 1) return;
  }
  std::vector<int64_t> numbers = {static_cast<int64_t>(rows_.size()), offsets_.pages, offsets_.rows,
                                  offsets_.blocks, offsets_.folds};
  for (const int64_t offset : offsets_.pieces) numbers.push_back(offset);
  const auto add = [&](const Range& r) { numbers.insert(numbers.end(), {r.begin, r.end}); };
  for (const Launches& l : launches_) {
    add(l.folds);
    add(l.waves);
  }
  for (const Wave& wave : waves_) {
    add(wave.blocks);
    for (const Range& pieces : wave.pieces) add(pieces);
    numbers.push_back(wave.max_rows);
  }
  for (const void* p :
       {static_cast<const void*>(tables_.At<std::byte>(0)),
        static_cast<const void*>(queries_.data()), static_cast<const void*>(slots_.data())}) {
    numbers.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)));
  }
  key_ = KeyOf(numbers);
}

absl::Status DeviceTaylorShift::Plan(absl::Span<const Segment> segments) {
  LK_RETURN_IF_ERROR(TaylorShiftPolicy::Plan(segments));
  sequences_.clear();
  pages_.clear();
  rows_.clear();
  blocks_.clear();
  folds_.clear();
  waves_.clear();
  launches_.clear();
  for (auto& pieces : pieces_) pieces.clear();
  for (const Segment& s : segments) AddSequence(s);
  for (const Round& round : rounds()) {
    Launches launches;
    launches.folds.begin = static_cast<int64_t>(folds_.size());
    launches.waves.begin = static_cast<int64_t>(waves_.size());
    for (const FoldRange& fold : round.folds) {
      folds_.push_back({fold.segment, static_cast<int32_t>(fold.first_page),
                        static_cast<int32_t>(fold.end_page)});
    }
    BeginWave();
    for (const ReadRange& reads : round.reads) AddReads(reads);
    EndWave();
    launches.folds.end = static_cast<int64_t>(folds_.size());
    launches.waves.end = static_cast<int64_t>(waves_.size());
    launches_.push_back(launches);
  }
  tables_.Clear();
  offsets_.sequences = tables_.Add(sequences_);
  offsets_.pages = tables_.Add(pages_);
  offsets_.rows = tables_.Add(rows_);
  offsets_.blocks = tables_.Add(blocks_);
  offsets_.folds = tables_.Add(folds_);
  for (int i = 0; i < kLists; ++i) offsets_.pieces[i] = tables_.Add(pieces_[i]);
  LK_RETURN_IF_ERROR(TakeMemory());
  LK_RETURN_IF_ERROR(tables_.Upload(device_));
  MakeKey();
  return absl::OkStatus();
}

TaylorStep DeviceTaylorShift::StepShape() const {
  const AttentionGeometry& g = context().geometry;
  TaylorStep step;
  step.n_heads = g.n_heads;
  step.n_kv_heads = g.n_kv_heads;
  step.head_dim = g.head_dim;
  step.n_columns = shape().n_columns;
  step.n_features = shape().n_features;
  step.head_floats = shape().head_floats;
  step.cache_type = g.cache_type;
  return step;
}

TaylorStep DeviceTaylorShift::StepAt(const LayerRows& rows) const {
  TaylorStep step = StepShape();
  step.layer = rows.layer;
  step.sequences = tables_.At<TaylorSequence>(offsets_.sequences);
  step.pages = tables_.At<std::byte*>(offsets_.pages);
  step.queries = const_cast<float*>(queries_.as<float>());
  step.slots = const_cast<float*>(slots_.as<float>());
  return step;
}

void DeviceTaylorShift::Read(const TaylorStep& step, const Wave& wave,
                             const LayerRows& rows) const {
  const DeviceKernels& kernels = device_.kernels();
  const auto* blocks = tables_.At<TaylorBlock>(offsets_.blocks);
  for (int i = 0; i < kLists; ++i) {
    const Range& pieces = wave.pieces[i];
    if (pieces.begin == pieces.end) continue;
    TaylorReadArgs args;
    args.step = step;
    args.blocks = blocks;
    args.pieces = tables_.At<TaylorPiece>(offsets_.pieces[i]) + pieces.begin;
    args.n_pieces = pieces.end - pieces.begin;
    args.max_rows = i == kFewState || i == kFewPages ? kTaylorFewRows : kTaylorManyRows;
    const bool of_state = i == kFewState || i == kManyState;
    (of_state ? kernels.taylor_read_state : kernels.taylor_read_pages)(device_, args);
  }
  if (wave.blocks.begin == wave.blocks.end) return;
  TaylorFinishArgs finish;
  finish.step = step;
  finish.blocks = blocks + wave.blocks.begin;
  finish.n_blocks = wave.blocks.end - wave.blocks.begin;
  finish.max_rows = wave.max_rows;
  finish.out = rows.out;
  finish.ld_out = rows.ld_out;
  kernels.taylor_finish(device_, finish);
}

void DeviceTaylorShift::Attend(const LayerRows& rows) {
  const DeviceKernels& kernels = device_.kernels();
  const TaylorStep step = StepAt(rows);
  TaylorWriteArgs write;
  write.step = step;
  write.rows = tables_.At<TaylorRow>(offsets_.rows);
  write.n_rows = static_cast<int64_t>(rows_.size());
  write.tau = tau_there_.as<float>() + rows.layer * context().geometry.n_heads;
  write.q = rows.q;
  write.k = rows.k;
  write.v = rows.v;
  write.ld = rows.ld_qkv;
  kernels.taylor_write(device_, write);
  const auto* folds = tables_.At<TaylorFold>(offsets_.folds);
  for (const Launches& l : launches_) {
    if (l.folds.begin < l.folds.end) {
      kernels.taylor_fold(device_, {step, folds + l.folds.begin, l.folds.end - l.folds.begin});
    }
    for (int64_t i = l.waves.begin; i < l.waves.end; ++i) Read(step, waves_[i], rows);
  }
}

}  // namespace lowkey
