#ifndef LOWKEY_ENGINE_SAMPLER_LOGITS_H_
#define LOWKEY_ENGINE_SAMPLER_LOGITS_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/sampling_arithmetic.h"

namespace lowkey {

// The largest logit; nullopt when one is NaN or +inf, when all are -inf, or when there is none.
std::optional<float> MaxLogit(absl::Span<const float> logits);

// The lowest id whose logit equals `max`, which must be among them.
int32_t FirstIdOf(absl::Span<const float> logits, float max);

// weights[i] = exp((logits[i] - max) / temperature), to 3e-7 of itself; 0 below e^-87. The same
// bits on every machine. temperature > 0, max as MaxLogit gives it.
void ExpWeights(absl::Span<const float> logits, float max, float temperature,
                std::vector<float>& weights);

// The sum of the lanes of a block, in the order of sampling_arithmetic.h.
inline double LanesSum(const double (&lanes)[kSumLanes]) {
  double sum = 0.0;
  for (double lane : lanes) sum += lane;
  return sum;
}
// The sum of a block of n <= kSumBlock weights, in that order.
double BlockSum(const float* weights, int32_t n);

// The logarithm of a sum of exp(logit - max), max taken back.
inline double LogOfSum(float max, double sum) { return static_cast<double>(max) + std::log(sum); }

// log sum_i exp(logits[i]), summed in double. max as MaxLogit gives it.
double LogSumExp(absl::Span<const float> logits, float max);

struct Candidate {
  float value = 0.0f;
  int32_t token = 0;
};

// More likely first; among equals the lower id.
inline bool ComesFirst(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// The k candidates that come first, in no particular order, into `out`. values hold no NaN.
// 1 <= k <= values.size().
void SelectTop(absl::Span<const float> values, int32_t k, std::vector<Candidate>& out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_LOGITS_H_
