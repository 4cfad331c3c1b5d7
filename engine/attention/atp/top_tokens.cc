#include "engine/attention/atp/top_tokens.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace lowkey {
namespace {

// A group is every 16th weight of 256 neighbours, so that maxima are taken lane by lane.
constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 256;

// Floats that are not negative order like their bits.
uint32_t Key(float weight) { return std::bit_cast<uint32_t>(weight); }

}  // namespace

uint32_t TopTokens::Threshold(absl::Span<const float> weights, int64_t n_wanted) {
  const auto n_chunks = static_cast<int64_t>(weights.size()) / kChunk;
  maxima_.resize(n_chunks * kLanes);
  for (int64_t c = 0; c < n_chunks; ++c) {
    const float* x = weights.data() + c * kChunk;
    float top[kLanes];
    std::copy_n(x, kLanes, top);
    for (int64_t i = kLanes; i < kChunk; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
    }
    std::copy_n(top, kLanes, maxima_.data() + c * kLanes);
  }
  if (static_cast<int64_t>(maxima_.size()) <= n_wanted) return 0;
  keys_.resize(maxima_.size());
  std::transform(maxima_.begin(), maxima_.end(), keys_.begin(), Key);
  std::nth_element(keys_.begin(), keys_.begin() + n_wanted - 1, keys_.end(), std::greater<>());
  return keys_[n_wanted - 1];
}

absl::Span<const int32_t> TopTokens::Select(absl::Span<const float> weights, int64_t n_wanted) {
  const auto n = static_cast<int64_t>(weights.size());
  n_wanted = std::min(n_wanted, n);
  chosen_.clear();
  if (n_wanted == 0) return chosen_;
  // n_wanted groups reach the threshold, so every weight that is wanted does.
  const uint32_t threshold = Threshold(weights, n_wanted);
  candidates_.clear();
  const auto consider = [&](int64_t i) {
    const uint32_t key = Key(weights[i]);
    if (key >= threshold) candidates_.push_back(uint64_t{key} << 32 | (~static_cast<uint32_t>(i)));
  };
  for (size_t group = 0; group < maxima_.size(); ++group) {
    if (Key(maxima_[group]) < threshold) continue;
    const auto chunk = static_cast<int64_t>(group) / kLanes * kChunk;
    for (int64_t i = 0; i < kChunk; i += kLanes) {
      consider(chunk + i + static_cast<int64_t>(group) % kLanes);
    }
  }
  for (auto i = static_cast<int64_t>(maxima_.size()) / kLanes * kChunk; i < n; ++i) consider(i);
  std::nth_element(candidates_.begin(), candidates_.begin() + n_wanted - 1, candidates_.end(),
                   std::greater<>());
  for (int64_t i = 0; i < n_wanted; ++i) {
    chosen_.push_back(static_cast<int32_t>(~static_cast<uint32_t>(candidates_[i])));
  }
  std::sort(chosen_.begin(), chosen_.end());
  return chosen_;
}

}  // namespace lowkey
