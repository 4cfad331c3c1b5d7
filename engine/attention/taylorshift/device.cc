#include "engine/attention/taylorshift/device.h"

#include <algorithm>

#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

// The bytes of a wave's slots, unless one block needs more.
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
  s.first_query = rows_.n();
  s.first_page = state.n_state_tokens / kPageTokens;
  s.first_page_entry = pages_.n();
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

void DeviceTaylorShift::BeginWave() {
  Wave& wave = waves_.emplace_back();
  wave.blocks.begin = blocks_.n();
  for (int i = 0; i < kLists; ++i) {
    wave.pieces[i].begin = pieces_[i].n();
  }
}

void DeviceTaylorShift::EndWave() {
  Wave& wave = waves_.back();
  if (decodes_) {
    PadTable(blocks_, wave.blocks.begin);
    for (int i = 0; i < kLists; ++i) PadTable(pieces_[i], wave.pieces[i].begin);
  }
  wave.blocks.end = blocks_.n();
  for (int i = 0; i < kLists; ++i) wave.pieces[i].end = pieces_[i].n();
}

int32_t DeviceTaylorShift::AddSpans(List list, int32_t slot, const TableRange& pages,
                                    int64_t span) {
  const auto block = static_cast<int32_t>(blocks_.size());
  for (int64_t begin = pages.begin; begin < pages.end; ++slot) {
    const int64_t end = std::min((begin / span + 1) * span, pages.end);
    pieces_[list].push_back({block, slot, static_cast<int32_t>(begin), static_cast<int32_t>(end)});
    begin = end;
  }
  return slot;
}

void DeviceTaylorShift::AddBlock(const ReadRange& range, int64_t first_row, int64_t n_rows) {
  const AttentionGeometry& g = context().geometry;
  const int64_t first_position = segments()[range.segment].first_position;
  const int64_t last = first_position + (first_row + n_rows - 1) / g.group();
  const bool is_few = n_rows <= kTaylorFewRows;
  // Many rows keep threads busy: their pieces are as long as possible.
  const bool in_one_piece = !is_few && TaylorHasTiles(StepShape());
  const bool has_state = range.n_state_tokens > 0;
  const int64_t slice = in_one_piece ? shape().n_features : TaylorSliceFeatures(g.key_dim());
  const int64_t n_slices = has_state ? DivideUp(shape().n_features, slice) : 0;
  const int64_t end_page = last / kPageTokens + 1;
  const int64_t near_page = std::min(FirstNearPage(last / kPageTokens), end_page);
  const TableRange far{range.n_state_tokens / kPageTokens, near_page}, near{near_page, end_page};
  const int64_t span = in_one_piece ? end_page : kTaylorSpanPages;
  const auto n_spans = [](const TableRange& pages, int64_t n) {
    return pages.size() == 0 ? 0 : (pages.end - 1) / n - pages.begin / n + 1;
  };

  TaylorBlock block;
  block.sequence = range.segment;
  block.n_rows = static_cast<int32_t>(n_rows);
  block.first_row = first_row;
  block.n_state_slots = n_slices;
  block.n_near_slots = n_spans(near, kTaylorSpanPages);
  block.n_slots = n_slices + n_spans(far, span) + block.n_near_slots;
  block.n_far_tokens = near_page * kPageTokens;
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
    pieces_[is_few ? kFewState : kManyState].push_back(
        {index, slot, static_cast<int32_t>(slot * slice), static_cast<int32_t>(end)});
  }
  slot = AddSpans(is_few ? kFewPages : kManyPages, slot, far, span);
  AddSpans(is_few ? kFewNear : kManyNear, slot, near, kTaylorSpanPages);
  blocks_.push_back(block);
}

void DeviceTaylorShift::AddReads(const ReadRange& range) {
  const int64_t group = context().geometry.group();
  const Segment& segment = segments()[range.segment];
  const int64_t end = range.first_position + range.n_tokens;
  for (int64_t position = range.first_position; position < end;) {
    // Rows of one page have the same window.
    const int64_t page_end = (position / kPageTokens + 1) * kPageTokens;
    const int64_t last = has_window() ? std::min(page_end, end) : end;
    const int64_t end_row = (last - segment.first_position) * group;
    for (int64_t row = (position - segment.first_position) * group; row < end_row;
         row += kTaylorManyRows) {
      AddBlock(range, row, std::min(kTaylorManyRows, end_row - row));
    }
    position = last;
  }
}

absl::Status DeviceTaylorShift::TakeMemory() {
  const AttentionGeometry& g = context().geometry;
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  if (device_tau_.size_bytes() == 0) {
    const auto n_bytes = static_cast<int64_t>(tau().size()) * kFloatBytes;
    LK_RETURN_IF_ERROR(GrowOnDevice(device_, 2 * n_bytes, device_tau_));
    device_.Upload(tau().data(), device_tau_.data(), n_bytes);
    device_.Upload(tau_window().data(), device_tau_.data() + n_bytes, n_bytes);
  }
  const int64_t n_rows = std::max(context().place->max_rows, rows_.n());
  LK_RETURN_IF_ERROR(
      GrowOnDevice(device_, (has_window() ? 2 : 1) * n_rows * g.q_dim() * kFloatBytes, queries_));
  int64_t n_slots = 0;
  for (const Wave& wave : waves_) n_slots = std::max(n_slots, wave.n_slots);
  return GrowOnDevice(device_, n_slots * SlotFloats() * kFloatBytes, slots_, kWaveBytes);
}

// Names everything that Attend's launches are made of.
uint64_t DeviceTaylorShift::KeyOfPlan() const {
  std::vector<int64_t> numbers = {rows_.n(), pages_.offset, rows_.offset, blocks_.offset,
                                  folds_.offset};
  for (const auto& pieces : pieces_) numbers.push_back(pieces.offset);
  const auto add = [&](const TableRange& r) { numbers.insert(numbers.end(), {r.begin, r.end}); };
  for (const Launches& l : launches_) {
    add(l.folds);
    add(l.waves);
  }
  for (const Wave& wave : waves_) {
    add(wave.blocks);
    for (const TableRange& pieces : wave.pieces) add(pieces);
    numbers.push_back(wave.max_rows);
  }
  numbers.insert(numbers.end(),
                 {AddressOf(tables_.data()), AddressOf(queries_.data()), AddressOf(slots_.data())});
  return KeyOf(numbers);
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
  decodes_ = IsDecodeStep(segments);
  for (const Segment& s : segments) AddSequence(s);
  if (decodes_) {
    PadTable(sequences_);
    PadTable(rows_);
  }
  for (const Round& round : rounds()) {
    Launches launches;
    launches.folds.begin = folds_.n();
    launches.waves.begin = static_cast<int64_t>(waves_.size());
    for (const FoldRange& fold : round.folds) {
      folds_.push_back({fold.segment, static_cast<int32_t>(fold.first_page),
                        static_cast<int32_t>(fold.end_page)});
    }
    if (decodes_) PadTable(folds_, launches.folds.begin);
    BeginWave();
    for (const ReadRange& reads : round.reads) AddReads(reads);
    EndWave();
    launches.folds.end = folds_.n();
    launches.waves.end = static_cast<int64_t>(waves_.size());
    launches_.push_back(launches);
  }
  LK_RETURN_IF_ERROR(TakeMemory());
  // Pages come last: their number does not tell plans apart.
  LK_RETURN_IF_ERROR(tables_.Upload(device_, sequences_, rows_, blocks_, folds_, pieces_[0],
                                    pieces_[1], pieces_[2], pieces_[3], pieces_[4], pieces_[5],
                                    pages_));
  key_ = std::nullopt;
  if (decodes_) key_ = KeyOfPlan();
  return absl::OkStatus();
}

TaylorStep DeviceTaylorShift::StepShape() const {
  const AttentionGeometry& g = context().geometry;
  return {.n_heads = g.n_heads,
          .n_kv_heads = g.n_kv_heads,
          .head_dim = g.head_dim,
          .key_dim = g.key_dim(),
          .n_columns = shape().n_columns,
          .n_features = shape().n_features,
          .head_floats = shape().head_floats,
          .cache_type = g.cache_type};
}

TaylorStep DeviceTaylorShift::StepAt(const LayerRows& rows) const {
  TaylorStep step = StepShape();
  step.layer = rows.layer;
  step.sequences = tables_.At(sequences_);
  step.pages = tables_.At(pages_);
  step.queries = const_cast<float*>(queries_.as<float>());
  if (has_window()) step.near_queries = step.queries + rows_.n() * context().geometry.q_dim();
  step.slots = const_cast<float*>(slots_.as<float>());
  return step;
}

void DeviceTaylorShift::Read(const TaylorStep& step, const Wave& wave,
                             const LayerRows& rows) const {
  const DeviceKernels& kernels = device_.kernels();
  for (int i = 0; i < kLists; ++i) {
    const TableRange& pieces = wave.pieces[i];
    if (pieces.size() == 0) continue;
    const bool is_few = i == kFewState || i == kFewPages || i == kFewNear;
    const bool is_near = i == kFewNear || i == kManyNear;
    const bool of_state = i == kFewState || i == kManyState;
    (of_state ? kernels.taylor_read_state : kernels.taylor_read_pages)(
        device_, {step, tables_.At(blocks_), tables_.At(pieces_[i], pieces.begin), pieces.size(),
                  is_few ? kTaylorFewRows : kTaylorManyRows, is_near});
  }
  if (wave.blocks.size() == 0) return;
  kernels.taylor_finish(device_, {step, tables_.At(blocks_, wave.blocks.begin), wave.blocks.size(),
                                  wave.max_rows, rows.out, rows.ld_out});
}

void DeviceTaylorShift::Attend(const LayerRows& rows) {
  const DeviceKernels& kernels = device_.kernels();
  const TaylorStep step = StepAt(rows);
  const float* tau_here = device_tau_.as<float>() + rows.layer * context().geometry.n_heads;
  kernels.taylor_write(device_, {.step = step,
                                 .rows = tables_.At(rows_),
                                 .n_rows = rows_.n(),
                                 .tau = tau_here,
                                 .tau_window = tau_here + static_cast<int64_t>(tau().size()),
                                 .q = rows.q,
                                 .k = rows.k,
                                 .v = rows.v,
                                 .ld = rows.ld_qkv});
  for (const Launches& l : launches_) {
    if (l.folds.size() > 0) {
      kernels.taylor_fold(device_, {step, tables_.At(folds_, l.folds.begin), l.folds.size()});
    }
    for (int64_t i = l.waves.begin; i < l.waves.end; ++i) Read(step, waves_[i], rows);
  }
}

}  // namespace lowkey
