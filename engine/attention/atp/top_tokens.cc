#include "engine/attention/atp/top_tokens.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace lowkey {
namespace {

// A group is every 16th weight of 256 neighbours, so that maxima are taken lane by lane.
constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 256;

constexpr uint32_t kSign = uint32_t{1} << 31;

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
  // Signed integers in the order of Key, which SSE2 compares.
  std::transform(maxima_.begin(), maxima_.end(), keys_.begin(),
                 [](float m) { return static_cast<int32_t>(Key(m) ^ kSign); });
  const auto [least, most] = std::minmax_element(keys_.begin(), keys_.end());
  int64_t low = *least, high = int64_t{*most} + 1, n_low = static_cast<int64_t>(keys_.size());
  // A few more groups than needed cost less than further steps.
  while (high - low > 1 && n_low > n_wanted + n_wanted / 8) {
    const int64_t middle = low + (high - low) / 2;
    const auto at = static_cast<int32_t>(middle);
    int32_t n = 0;
    for (int32_t key : keys_) n += key >= at ? 1 : 0;
    if (n >= n_wanted) {
      low = middle, n_low = n;
    } else {
      high = middle;
    }
  }
  return static_cast<uint32_t>(low) ^ kSign;
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
  constexpr int64_t kWord = 64;
  is_chosen_.assign((n + kWord - 1) / kWord, 0);
  for (int64_t i = 0; i < n_wanted; ++i) {
    const uint32_t at = ~static_cast<uint32_t>(candidates_[i]);
    is_chosen_[at / kWord] |= uint64_t{1} << at % kWord;
  }
  for (size_t word = 0; word < is_chosen_.size(); ++word) {
    for (uint64_t bits = is_chosen_[word]; bits != 0; bits &= bits - 1) {
      chosen_.push_back(static_cast<int32_t>(word * kWord + std::countr_zero(bits)));
    }
  }
  return chosen_;
}

}  // namespace lowkey
