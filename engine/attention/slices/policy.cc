#include "engine/attention/slices/policy.h"

#include <cmath>
#include <utility>

#include "engine/attention/pages/column_pages.h"
#include "engine/attention/standard/policy.h"

namespace lowkey {

SlicePolicy::SlicePolicy(Mechanism id, const AttentionContext& context)
    : id_(id),
      context_(context),
      geometry_(context.geometry),
      n_key_heads_(
          ProjectionsOf(id, context.weights->over).Has(Projection::kK) ? geometry_.n_kv_heads : 0),
      tile_bytes_(ColumnTileBytes(context.geometry)),
      layer_bytes_((n_key_heads_ + geometry_.n_kv_heads * (IsAligned() ? 2 : 1)) * tile_bytes_) {}

std::optional<int64_t> SlicePolicy::max_tokens() const {
  if (!IsAligned()) return std::nullopt;
  return context_.weights->alignment_tokens;
}

int64_t SlicePolicy::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  return PagesFor(bound.n_tokens) * PageBytes();
}

AttentionWork SlicePolicy::Work(const AttentionOptions&, int64_t n_tokens) const {
  AttentionWork work = SoftmaxWork(geometry_, n_tokens);
  const double all_pairs = SoftmaxWork(geometry_, 1).decode * static_cast<double>(n_tokens);
  if (n_key_heads_ == 0) work.decode *= 2;  // a key is rotated for every query that reads it
  if (IsAligned()) {
    work.prefill += all_pairs * static_cast<double>(n_tokens) / 4;  // V', half of what a pair costs
    work.decode += all_pairs / 2;
  }
  return work;
}

std::optional<SequenceCache> SlicePolicy::Prefix(const SequenceCache& sequence, int64_t,
                                                 int64_t n_tokens) const {
  auto pages = FirstPages(sequence.state.As<SliceState>().pages, 0, n_tokens / kPageTokens);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.state.As<SliceState>().pages = *std::move(pages);
  return prefix;
}

void SlicePolicy::AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                             SequenceCache& prefix) const {
  AppendElements(from.state.As<SliceState>().pages, begin / kPageTokens, end / kPageTokens,
                 prefix.state.As<SliceState>().pages);
  prefix.n_tokens += end - begin;
}

absl::Status SlicePolicy::TakeOwnPages(const Segment& segment) const {
  return TakeSlabPages(segment, PageBytes(), *context_.cache,
                       segment.sequence->state.As<SliceState>().pages);
}

int64_t SlicePolicy::RotationFloats() const {
  return 2 * static_cast<int64_t>(context_.weights->inverse_frequencies.size()) * kPageTokens;
}

void SlicePolicy::GrowRotations(int64_t n_pages) {
  const std::vector<double>& frequencies = context_.weights->inverse_frequencies;
  const auto half = static_cast<int64_t>(frequencies.size());
  if (n_key_heads_ > 0 || half == 0) return;
  const int64_t page_floats = RotationFloats();
  for (auto page = static_cast<int64_t>(rotations_.size()) / page_floats; page < n_pages; ++page) {
    rotations_.resize(static_cast<size_t>((page + 1) * page_floats));
    float* table = rotations_.data() + page * page_floats;
    for (int64_t j = 0; j < half; ++j) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        const double angle = static_cast<double>(page * kPageTokens + t) * frequencies[j];
        table[j * kPageTokens + t] = static_cast<float>(std::cos(angle));
        table[(half + j) * kPageTokens + t] = static_cast<float>(std::sin(angle));
      }
    }
  }
}

}  // namespace lowkey
