#include "engine/attention/slices/device.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {

DeviceSlices::DeviceSlices(Mechanism id, const AttentionContext& context)
    : SlicePolicy(id, context), device_(*context.place->device) {
  if (!IsAligned()) return;
  const std::vector<TensorView>& alignment = context.weights->alignment;
  if (std::all_of(alignment.begin(), alignment.end(),
                  [](const TensorView& t) { return t.dtype == DType::kBF16; })) {
    alignment_type_ = StorageType::kBFloat16;
  }
}

int64_t DeviceSlices::AlignmentFloats() const {
  const int64_t n = context_.weights->alignment_tokens;
  return n * (n + 1) / 2;
}

absl::Status DeviceSlices::TakeAlignment() {
  if (!IsAligned() || alignment_.size_bytes() > 0) return absl::OkStatus();
  const std::vector<TensorView>& layers = context_.weights->alignment;
  const int64_t n = AlignmentFloats(), n_bytes = n * StorageBytes(alignment_type_);
  LK_RETURN_IF_ERROR(
      GrowOnDevice(device_, static_cast<int64_t>(layers.size()) * n_bytes, alignment_));
  std::vector<float> floats;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::byte* to = alignment_.data() + static_cast<int64_t>(i) * n_bytes;
    if (alignment_type_ == StorageType::kBFloat16) {
      device_.Upload(layers[i].data, to, n_bytes);
      continue;
    }
    floats.resize(static_cast<size_t>(n));
    LoadFloats(layers[i], 0, n, floats.data());
    device_.Upload(floats.data(), to, n_bytes);
  }
  return absl::OkStatus();
}

absl::Status DeviceSlices::TakeRotations(int64_t n_pages) {
  if (n_key_heads_ > 0) return absl::OkStatus();
  const int64_t page_bytes = RotationFloats() * static_cast<int64_t>(sizeof(float));
  if (n_pages * page_bytes <= static_cast<int64_t>(device_rotations_.size_bytes())) {
    return absl::OkStatus();
  }
  const int64_t n_wanted = std::max<int64_t>(n_pages, 16);
  LK_RETURN_IF_ERROR(GrowOnDevice(device_, n_wanted * page_bytes, device_rotations_));
  n_pages = static_cast<int64_t>(device_rotations_.size_bytes()) / page_bytes;
  GrowRotations(n_pages);
  device_.Upload(rotations_.data(), device_rotations_.data(), n_pages * page_bytes);
  return absl::OkStatus();
}

void DeviceSlices::AddBlocks(const Segment& segment, int64_t every,
                             std::vector<SliceRows>& blocks) const {
  for (int64_t row = 0; row < segment.n_rows;) {
    const int64_t n =
        std::min(every - (segment.first_position + row) % every, segment.n_rows - row);
    blocks.push_back(
        {static_cast<int32_t>(sequences_.n()), static_cast<int32_t>(row), static_cast<int32_t>(n)});
    row += n;
  }
}

void DeviceSlices::AddSegment(const Segment& segment) {
  AddBlocks(segment, 1, rows_);
  AddBlocks(segment, kSliceAttendRows, attend_blocks_);
  if (IsAligned()) AddBlocks(segment, kSliceAlignRows, align_blocks_);
  sequences_.push_back({segment.first_position, segment.first_row, pages_.n()});
  for (const auto& page : segment.sequence->state.As<SliceState>().pages) {
    pages_.push_back(page->data());
  }
  if (segment.n_rows > 1) max_rows_ = kSliceAttendRows;
  max_tokens_ = std::max(max_tokens_, segment.first_position + segment.n_rows);
}

// Names everything that Attend's launches are made of.
uint64_t DeviceSlices::KeyOfPlan() const {
  return KeyOf({rows_.n(), pages_.offset, rows_.offset, align_blocks_.offset, attend_blocks_.offset,
                AddressOf(device_rotations_.data()), AddressOf(alignment_.data()),
                AddressOf(tables_.data())});
}

absl::Status DeviceSlices::Plan(absl::Span<const Segment> segments) {
  sequences_.clear();
  pages_.clear();
  rows_.clear();
  align_blocks_.clear();
  attend_blocks_.clear();
  max_rows_ = 1;
  max_tokens_ = 0;
  for (const Segment& s : segments) {
    LK_RETURN_IF_ERROR(TakeOwnPages(s));
    AddSegment(s);
  }
  const bool decodes = IsDecodeStep(segments);
  if (decodes) {
    PadTable(sequences_);
    for (auto* rows : {&rows_, &align_blocks_, &attend_blocks_}) PadTable(*rows);
  }
  LK_RETURN_IF_ERROR(TakeAlignment());
  LK_RETURN_IF_ERROR(TakeRotations(PagesFor(max_tokens_)));
  // Pages come last: their number does not tell plans apart.
  LK_RETURN_IF_ERROR(
      tables_.Upload(device_, sequences_, rows_, align_blocks_, attend_blocks_, pages_));
  key_ = std::nullopt;
  if (decodes) key_ = KeyOfPlan();
  return absl::OkStatus();
}

SliceStep DeviceSlices::StepAt(int64_t layer) const {
  const AttentionGeometry& g = geometry_;
  return {layer,       g.n_heads,    g.n_kv_heads,           n_key_heads_ > 0,  g.head_dim,
          IsAligned(), g.cache_type, tables_.At(sequences_), tables_.At(pages_)};
}

void DeviceSlices::Attend(const LayerRows& rows) {
  const DeviceKernels& kernels = device_.kernels();
  const SliceStep step = StepAt(rows.layer);
  kernels.slice_write(device_, {.step = step,
                                .rows = tables_.At(rows_),
                                .n_rows = rows_.n(),
                                .keys = rows.k,
                                .values = rows.v,
                                .ld = rows.ld_qkv});
  if (IsAligned()) {
    const int64_t layer_bytes = AlignmentFloats() * StorageBytes(alignment_type_);
    kernels.slice_align(device_, {.step = step,
                                  .rows = tables_.At(align_blocks_),
                                  .n_blocks = align_blocks_.n(),
                                  .weights = alignment_.data() + rows.layer * layer_bytes,
                                  .weight_type = alignment_type_});
  }
  // No sequence has this many tokens. A constant may be part of the launches that a key names.
  constexpr int64_t kAllTokens = int64_t{1} << 40;
  kernels.slice_attend(device_, {.step = step,
                                 .rows = tables_.At(attend_blocks_),
                                 .n_blocks = attend_blocks_.n(),
                                 .max_rows = max_rows_,
                                 .n_visible = geometry_.sliding_window.value_or(kAllTokens),
                                 .rotations = device_rotations_.as<float>(),
                                 .q = rows.q,
                                 .ld_q = rows.ld_qkv,
                                 .out = rows.out,
                                 .ld_out = rows.ld_out});
}

}  // namespace lowkey
