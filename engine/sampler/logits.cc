#include "engine/sampler/logits.h"

#include <algorithm>

#include "engine/kernels/kernels.h"
#include "engine/kernels/sampling_arithmetic.h"

namespace lowkey {
namespace {

constexpr int32_t kHeapLimit = 256;

}  // namespace

std::optional<float> MaxLogit(absl::Span<const float> logits) {
  if (logits.empty()) return std::nullopt;
  const KeyRange keys = Kernels().key_range(logits.data(), static_cast<int64_t>(logits.size()));
  if (keys.smallest < kMinusInfinityKey || keys.largest >= kInfinityKey) return std::nullopt;
  if (keys.largest == kMinusInfinityKey) return std::nullopt;
  return FromOrderKey(keys.largest);
}

int32_t FirstIdOf(absl::Span<const float> logits, float max) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

void ExpWeights(absl::Span<const float> logits, float max, float temperature,
                std::vector<float>& weights) {
  weights.resize(logits.size());
  const float* in = logits.data();
  float* out = weights.data();
  const int64_t n = static_cast<int64_t>(logits.size());
  for (int64_t i = 0; i < n; ++i) out[i] = TokenWeight(in[i], max, temperature);
}

double BlockSum(const float* weights, int32_t n) {
  double lanes[kSumLanes] = {};
  int32_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int32_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += weights[i + lane];
  }
  for (int32_t lane = 0; i < n; ++i, ++lane) lanes[lane] += weights[i];
  return LanesSum(lanes);
}

double LogSumExp(absl::Span<const float> logits, float max) {
  float weights[kSumBlock];
  double sum = 0.0;
  for (size_t begin = 0; begin < logits.size(); begin += kSumBlock) {
    const auto n = static_cast<int32_t>(std::min<size_t>(kSumBlock, logits.size() - begin));
    const float* in = logits.data() + begin;
    for (int32_t i = 0; i < n; ++i) weights[i] = ExpOfNegative(in[i] - max);
    sum += BlockSum(weights, n);
  }
  return LogOfSum(max, sum);
}

void SelectTop(absl::Span<const float> values, int32_t k, std::vector<Candidate>& out) {
  const int32_t n = static_cast<int32_t>(values.size());
  out.clear();
  if (k > kHeapLimit || k == n) {
    for (int32_t i = 0; i < n; ++i) out.push_back({values[i], i});
    if (k < n) std::nth_element(out.begin(), out.begin() + k, out.end(), ComesFirst);
    out.resize(k);
    return;
  }
  // A heap with the last of the k on top: nearly every value fails one comparison. Ids rise, so an
  // equal value never displaces one.
  for (int32_t i = 0; i < k; ++i) out.push_back({values[i], i});
  std::make_heap(out.begin(), out.end(), ComesFirst);
  for (int32_t i = k; i < n; ++i) {
    if (!(values[i] > out.front().value)) continue;
    std::pop_heap(out.begin(), out.end(), ComesFirst);
    out.back() = {values[i], i};
    std::push_heap(out.begin(), out.end(), ComesFirst);
  }
}

}  // namespace lowkey
