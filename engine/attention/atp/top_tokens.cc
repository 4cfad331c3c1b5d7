#include "engine/attention/atp/top_tokens.h"

#include <algorithm>
#include <bit>

#include "engine/kernels/kernels.h"

namespace lowkey {
namespace {

// A group is every 16th weight of 256 neighbors, the groups of KernelTable::lane_maxima.
constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 256;

constexpr uint32_t kSign = uint32_t{1} << 31;

// Floats that are not negative order like their bits. As signed integers, which SSE2 compares, they
// need the top bit turned over, so that NaN counts as largest.
int32_t Key(float weight) { return static_cast<int32_t>(std::bit_cast<uint32_t>(weight) ^ kSign); }
float Weight(int32_t key) { return std::bit_cast<float>(static_cast<uint32_t>(key) ^ kSign); }

// Returns a key that at least n_wanted of the keys reach, and at most n_wanted + n_spare unless
// more are equal. Halves the range, with no branch that depends on a key.
int32_t Reached(absl::Span<const int32_t> keys, int64_t n_wanted, int64_t n_spare) {
  int32_t least = keys[0], most = keys[0];
  for (int32_t key : keys) least = std::min(least, key), most = std::max(most, key);
  int64_t low = least, high = int64_t{most} + 1, n_low = static_cast<int64_t>(keys.size());
  while (high - low > 1 && n_low > n_wanted + n_spare) {
    const int64_t middle = low + (high - low) / 2;
    const auto at = static_cast<int32_t>(middle);
    int32_t n = 0;
    for (int32_t key : keys) n += key >= at ? 1 : 0;
    if (n >= n_wanted) {
      low = middle, n_low = n;
    } else {
      high = middle;
    }
  }
  return static_cast<int32_t>(low);
}

}  // namespace

float TopTokens::Threshold(absl::Span<const float> weights, int64_t n_wanted) {
  const auto n_chunks = static_cast<int64_t>(weights.size()) / kChunk;
  maxima_.resize(n_chunks * kLanes);
  if (static_cast<int64_t>(maxima_.size()) <= n_wanted) return 0;
  Kernels().lane_maxima(weights.data(), n_chunks, maxima_.data());
  keys_.resize(maxima_.size());
  std::transform(maxima_.begin(), maxima_.end(), keys_.begin(), Key);
  // A few more groups than needed cost less than further steps.
  return Weight(Reached(keys_, n_wanted, n_wanted / 8));
}

absl::Span<const int32_t> TopTokens::Select(absl::Span<const float> weights, int64_t n_wanted,
                                            float least) {
  const auto n = static_cast<int64_t>(weights.size());
  n_wanted = std::min(n_wanted, n);
  if (n_wanted == 0) return {};
  if (static_cast<int64_t>(chosen_.size()) < n) chosen_.resize(n);
  // n_wanted groups reach Threshold(), so every weight that is wanted reaches it and `least`.
  const float threshold = std::max(Threshold(weights, n_wanted), least);
  const int64_t n_found = Kernels().find_not_below(weights.data(), n, threshold, chosen_.data());
  if (n_found <= n_wanted) return {chosen_.data(), static_cast<size_t>(n_found)};
  keys_.resize(n_found);
  for (int64_t i = 0; i < n_found; ++i) keys_[i] = Key(weights[chosen_[i]]);
  const int32_t lowest = Reached(keys_, n_wanted, 0);
  int64_t n_equal = n_wanted;
  for (int32_t key : keys_) n_equal -= key > lowest ? 1 : 0;
  int64_t n_chosen = 0;
  for (int64_t i = 0; i < n_found; ++i) {
    const bool is_equal = keys_[i] == lowest,
               is_chosen = keys_[i] > lowest || (is_equal && n_equal > 0);
    n_equal -= is_equal ? 1 : 0;
    chosen_[n_chosen] = chosen_[i];
    n_chosen += is_chosen ? 1 : 0;
  }
  return {chosen_.data(), static_cast<size_t>(n_chosen)};
}

}  // namespace lowkey
