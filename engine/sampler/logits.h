#ifndef LOWKEY_ENGINE_SAMPLER_LOGITS_H_
#define LOWKEY_ENGINE_SAMPLER_LOGITS_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/sampling_arithmetic.h"

namespace lowkey {

// Returns the largest logit; nullopt when one is NaN or +inf, all are -inf, or there is none.
std::optional<float> MaxLogit(absl::Span<const float> logits);

// Returns the lowest id whose logit equals `max`, which must be among the logits.
int32_t FirstIdOf(absl::Span<const float> logits, float max);

// weights[i] = exp((logits[i] - max) / temperature), to 3e-7 of itself; 0 below e^-87. The same
// bits on every machine. temperature > 0, max as MaxLogit gives it.
void ExpWeights(absl::Span<const float> logits, float max, float temperature,
                std::vector<float>& weights);

// Sums a block's partial sums in the order of sampling_arithmetic.h.
inline double LanesSum(const double (&lanes)[kSumLanes]) {
  double sum = 0.0;
  for (double lane : lanes) sum += lane;
  return sum;
}
// Sums a block of n <= kSumBlock weights in the same order.
double BlockSum(const float* weights, int32_t n);

// Returns the logarithm of sum * exp(max).
inline double LogOfSum(float max, double sum) { return static_cast<double>(max) + std::log(sum); }

// Returns log sum_i exp(logits[i]), summed in double. max as MaxLogit gives it.
double LogSumExp(absl::Span<const float> logits, float max);

struct Candidate {
  float value = 0.0f;
  int32_t token = 0;
};

// Orders more likely tokens first; among equals the lower id.
inline bool ComesFirst(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// Writes the k candidates that come first to `out`, in no particular order. values hold no NaN.
// 1 <= k <= values.size().
void SelectTop(absl::Span<const float> values, int32_t k, std::vector<Candidate>& out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_LOGITS_H_
