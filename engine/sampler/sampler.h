#ifndef LOWKEY_ENGINE_SAMPLER_SAMPLER_H_
#define LOWKEY_ENGINE_SAMPLER_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/sampler/constraint_path.h"
#include "engine/sampler/draw.h"
#include "engine/sampler/token_constraint.h"

namespace lowkey {

// The options of a draw, applied in this order: logit_bias, repetition, presence and frequency
// penalty on logits, then temperature, then top_k, top_p, min_p (each over the distribution that
// the one before left; among equals the lowest ids stay), then one draw.
struct SamplingOptions {
  float temperature = 0.0f;  // 0..2; 0 is greedy (ties: the lowest id)
  int32_t top_k = 0;         // 0 (off)..vocab_size
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1)
  // (0, 2]; over prompt and output tokens: divides positive logits and multiplies the others.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // -2..2; over output tokens
  float frequency_penalty = 0.0f;  // -2..2; over output tokens, times their count
  // Token id -> [-100, 100], at most 1024, ids distinct.
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  std::optional<int32_t> logprobs;  // report the drawn token and this many most likely (0..20)
};

struct TokenLogprob {
  int32_t token = 0;
  // Natural logarithm of softmax over the raw logits (before bias, penalties, temperature).
  float logprob = 0.0f;
};

struct SampledToken {
  int32_t token = 0;
  std::optional<float> logprob;            // set when options.logprobs is
  std::vector<TokenLogprob> top_logprobs;  // most likely first; ties: lowest id first
};

// INVALID_ARGUMENT naming the field, its value and its range (NaN is out of every range).
absl::Status ValidateSamplingOptions(const SamplingOptions& options, int32_t vocab_size);

// Returns whether drawn tokens change the logits of later ones.
bool Penalizes(const SamplingOptions& options);

// Returns the random number in [0, 1) of a draw. The generator is counter-based: the number depends
// on the three arguments alone. With mix = splitmix64's finalizer and g = 0x9e3779b97f4a7c15, all
// modulo 2^64:
//   z = mix(seed + g), z = mix(z + g * (choice + 1)), z = mix(z + g * (step + 1)),
// and the result is z's upper 53 bits times 2^-53.
double UniformDraw(uint64_t seed, int32_t choice, int64_t step);

// Draws tokens for one sequence. Thread-compatible. The draw at step i depends on (seed, choice, i,
// logits, history) alone: never on what else is in the batch, on time or on the machine's
// randomness.
class Sampler {
 public:
  // options must be valid. `choice` is the index among a request's n choices. Prompt tokens count
  // for repetition_penalty; each is in [0, vocab_size).
  Sampler(SamplingOptions options, int32_t choice, int32_t vocab_size,
          absl::Span<const int32_t> prompt);

  // From now on only tokens that the constraint lets through are drawn; it is told of each. Its
  // vocabulary is the sampler's. Log-probabilities are reported as without it.
  void Constrain(std::unique_ptr<TokenConstraint> constraint) {
    constraint_ = std::make_unique<ConstraintPath>(std::move(constraint));
  }
  // Returns nullptr without a constraint.
  ConstraintPath* constraint() { return constraint_.get(); }

  // Draws the next token from logits [vocab_size] and counts it as output. INTERNAL when a logit is
  // NaN or +inf, or when all are -inf; the constraint's errors; then nothing is counted. A logit of
  // -inf is never drawn.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits);

  // Counts a token that a device drew from the same options, adjustments(), mask and uniform(). The
  // constraint's errors; then nothing is counted.
  absl::Status Accept(int32_t token);

  int64_t n_sampled() const { return n_sampled_; }
  int32_t vocab_size() const { return vocab_size_; }
  const SamplingOptions& options() const { return options_; }
  // The changes that biases and penalties make to the next token's logits, each token at most once.
  // The list grows at its end; the span is valid until the next token is counted.
  absl::Span<const LogitAdjustment> adjustments() const { return adjustments_; }
  // The penalty of adjustments()[i] if its token were drawn once more; the penalty of a token
  // without adjustment once it is drawn.
  float next_penalty(size_t i) const { return PenaltyOf(output_counts_[i] + 1); }
  float first_penalty() const { return PenaltyOf(1); }
  // The random number of the draw at a step; n_sampled() is the next step.
  double uniform(int64_t step) const { return UniformDraw(options_.seed, choice_, step); }

 private:
  size_t AdjustmentOf(int32_t token);
  // The penalty of a token that was drawn `count` times.
  float PenaltyOf(int32_t count) const;
  void Report(absl::Span<const float> logits, SampledToken& sampled) const;
  // Copies logits to adjusted_, those outside of the constraint's mask as -inf.
  absl::Status Mask(absl::Span<const float> logits);

  const SamplingOptions options_;
  const int32_t choice_;
  const int32_t vocab_size_;
  int64_t n_sampled_ = 0;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<int32_t> output_counts_;                  // by adjustment
  absl::flat_hash_map<int32_t, size_t> adjustment_of_;  // index of a token's adjustment
  std::vector<float> adjusted_;
  DrawScratch scratch_;
  std::unique_ptr<ConstraintPath> constraint_;
};

// Sampler::Sample's errors for output token `step`: the logits are bad as they came, or biases and
// penalties leave none.
absl::Status BadLogitsError(int64_t step);
absl::Status NothingLeftError(int64_t step);

// Returns the log-probability of a token in logits whose LogSumExp is `log_sum`.
TokenLogprob LogprobOf(int32_t token, float logit, double log_sum);

// Returns log softmax(logits)[token], natural logarithm, summed in double. logits [vocab_size]. NaN
// when Sampler::Sample would refuse the logits.
float LogSoftmaxAt(absl::Span<const float> logits, int32_t token);

// Returns the n most likely tokens (all when there are fewer) with their log-probabilities, most
// likely first; ties: lowest id first. Empty when Sampler::Sample would refuse the logits.
std::vector<TokenLogprob> TopLogprobs(absl::Span<const float> logits, int32_t n);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_SAMPLER_H_
