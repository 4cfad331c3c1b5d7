#include "engine/sampler/logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lowkey {
namespace {

constexpr float kLowestExponent = -87.0f;  // e^-87 is still a normal float
constexpr int32_t kHeapLimit = 256;

// Signed integers in the order of the floats with these bits: integer minima and maxima are
// vectorised, those of floats are not without leave to ignore NaN.
int32_t OrderKey(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

float FromOrderKey(int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff)); }

// e^x for x <= 0 (Cephes' expf): 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. Without branches
// or library calls, so that loops over it are vectorised.
inline float ExpOfNegative(float x) {
  // Masks, not conditions: the compiler would branch around whatever may trap. NaN too is masked.
  const int32_t mask = -static_cast<int32_t>(x > kLowestExponent);
  const float c = std::bit_cast<float>((std::bit_cast<int32_t>(x) & mask) |
                                       (std::bit_cast<int32_t>(kLowestExponent) & ~mask));
  const int32_t n = static_cast<int32_t>(c * 1.44269504f - 0.5f);
  const float whole = static_cast<float>(n);
  const float r = c - whole * 0.693359375f - whole * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const float power = std::bit_cast<float>((n + 127) << 23);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p * power) & mask);
}

}  // namespace

std::optional<float> MaxLogit(absl::Span<const float> logits) {
  int32_t largest = std::numeric_limits<int32_t>::min();
  int32_t smallest = std::numeric_limits<int32_t>::max();
  for (float x : logits) {
    const int32_t key = OrderKey(x);
    largest = std::max(largest, key);
    smallest = std::min(smallest, key);
  }
  // NaN lies beyond the infinity of its sign.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (logits.empty() || smallest < OrderKey(-kInfinity)) return std::nullopt;
  if (largest >= OrderKey(kInfinity) || largest == OrderKey(-kInfinity)) return std::nullopt;
  return FromOrderKey(largest);
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
  for (int64_t i = 0; i < n; ++i) out[i] = ExpOfNegative((in[i] - max) / temperature);
}

double LogSumExp(absl::Span<const float> logits, float max) {
  constexpr size_t kChunk = 256;
  float weights[kChunk];
  double sum = 0.0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t n = std::min(kChunk, logits.size() - begin);
    const float* in = logits.data() + begin;
    for (size_t i = 0; i < n; ++i) weights[i] = ExpOfNegative(in[i] - max);
    for (size_t i = 0; i < n; ++i) sum += weights[i];
  }
  return static_cast<double>(max) + std::log(sum);
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
