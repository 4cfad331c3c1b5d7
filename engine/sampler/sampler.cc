#include "engine/sampler/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mix_bits.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "engine/sampler/logits.h"

namespace lowkey {
namespace {

// A range of floats; NaN is in none.
struct FloatRange {
  float min, max;
  bool min_is_open = false, max_is_open = false;

  bool Contains(float x) const {
    return (min_is_open ? x > min : x >= min) && (max_is_open ? x < max : x <= max);
  }
  std::string Text() const {
    return absl::StrCat(min_is_open ? "(" : "[", min, ", ", max, max_is_open ? ")" : "]");
  }
};

absl::Status CheckFloat(const std::string& field, float value, const FloatRange& range) {
  if (range.Contains(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, ", expected a number in ", range.Text()));
}

absl::Status CheckBiases(const SamplingOptions& options, int32_t vocab_size) {
  if (options.logit_bias.size() > kMaxBiases) {
    return absl::InvalidArgumentError(absl::StrCat("logit_bias: ", options.logit_bias.size(),
                                                   " entries, expected at most ", kMaxBiases));
  }
  absl::flat_hash_set<int32_t> seen;
  for (const auto& [token, bias] : options.logit_bias) {
    LK_RETURN_IF_ERROR(CheckRange("logit_bias: token", token, 0, vocab_size - 1));
    LK_RETURN_IF_ERROR(
        CheckFloat(absl::StrCat("logit_bias: token ", token), bias, {-kMaxBias, kMaxBias}));
    if (!seen.insert(token).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias: token ", token, " appears twice, expected distinct ids"));
    }
  }
  return absl::OkStatus();
}

std::vector<TokenLogprob> TopOf(absl::Span<const float> logits, int32_t n, double log_sum) {
  const int32_t count = std::min(n, static_cast<int32_t>(logits.size()));
  std::vector<TokenLogprob> top;
  if (count <= 0) return top;
  std::vector<Candidate> candidates;
  SelectTop(logits, count, candidates);
  std::sort(candidates.begin(), candidates.end(), ComesFirst);
  for (const Candidate& c : candidates) {
    top.push_back(LogprobOf(c.token, c.value, log_sum));
  }
  return top;
}

}  // namespace

absl::Status ValidateSamplingOptions(const SamplingOptions& options, int32_t vocab_size) {
  LK_RETURN_IF_ERROR(CheckFloat("temperature", options.temperature, {0.0f, 2.0f}));
  LK_RETURN_IF_ERROR(CheckRange("top_k", options.top_k, 0, vocab_size));
  LK_RETURN_IF_ERROR(CheckFloat("top_p", options.top_p, {0.0f, 1.0f, true, false}));
  LK_RETURN_IF_ERROR(CheckFloat("min_p", options.min_p, {0.0f, 1.0f, false, true}));
  LK_RETURN_IF_ERROR(
      CheckFloat("repetition_penalty", options.repetition_penalty, {0.0f, 2.0f, true, false}));
  LK_RETURN_IF_ERROR(CheckFloat("presence_penalty", options.presence_penalty, {-2.0f, 2.0f}));
  LK_RETURN_IF_ERROR(CheckFloat("frequency_penalty", options.frequency_penalty, {-2.0f, 2.0f}));
  if (options.logprobs.has_value()) {
    LK_RETURN_IF_ERROR(CheckRange("logprobs", *options.logprobs, 0, kMaxLogprobs));
  }
  return CheckBiases(options, vocab_size);
}

double UniformDraw(uint64_t seed, int32_t choice, int64_t step) {
  uint64_t z = MixBits(seed + kGoldenStep);
  z = MixBits(z + kGoldenStep * (static_cast<uint64_t>(choice) + 1));
  z = MixBits(z + kGoldenStep * (static_cast<uint64_t>(step) + 1));
  return static_cast<double>(z >> 11) * 0x1p-53;
}

Sampler::Sampler(SamplingOptions options, int32_t choice, int32_t vocab_size,
                 absl::Span<const int32_t> prompt)
    : options_(std::move(options)), choice_(choice), vocab_size_(vocab_size) {
  for (const auto& [token, bias] : options_.logit_bias) {
    adjustments_[AdjustmentOf(token)].bias = bias;
  }
  if (options_.repetition_penalty == 1.0f) return;
  for (int32_t token : prompt) {
    LK_CHECK(token >= 0 && token < vocab_size);
    adjustments_[AdjustmentOf(token)].repeats = 1;
  }
}

bool Penalizes(const SamplingOptions& options) {
  return options.repetition_penalty != 1.0f || options.presence_penalty != 0.0f ||
         options.frequency_penalty != 0.0f;
}

size_t Sampler::AdjustmentOf(int32_t token) {
  const auto [place, is_new] = adjustment_of_.try_emplace(token, adjustments_.size());
  if (is_new) {
    adjustments_.push_back({.token = token});
    output_counts_.push_back(0);
  }
  return place->second;
}

absl::Status Sampler::Accept(int32_t token) {
  if (constraint_ != nullptr) LK_RETURN_IF_ERROR(constraint_->Advance(token));
  ++n_sampled_;
  if (!Penalizes(options_)) return absl::OkStatus();
  const size_t i = AdjustmentOf(token);
  ++output_counts_[i];
  if (options_.repetition_penalty != 1.0f) adjustments_[i].repeats = 1;
  adjustments_[i].penalty = PenaltyOf(output_counts_[i]);
  return absl::OkStatus();
}

float Sampler::PenaltyOf(int32_t count) const {
  return options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
}

absl::Status BadLogitsError(int64_t step) {
  return absl::InternalError(
      absl::StrCat("logits of output token ", step,
                   " hold NaN or +inf, or are all -inf, expected finite numbers"));
}

absl::Status NothingLeftError(int64_t step) {
  return absl::InternalError(
      absl::StrCat("logits of output token ", step, " leave no token after bias and penalties"));
}

absl::StatusOr<SampledToken> Sampler::Sample(absl::Span<const float> logits) {
  LK_CHECK(static_cast<int32_t>(logits.size()) == vocab_size_);
  std::optional<float> max = MaxLogit(logits);
  if (!max.has_value()) return BadLogitsError(n_sampled_);
  absl::Span<const float> adjusted = logits;
  if (!adjustments_.empty() || constraint_ != nullptr) {
    LK_RETURN_IF_ERROR(Mask(logits));
    for (const LogitAdjustment& a : adjustments_) {
      adjusted_[a.token] = AdjustedLogit(adjusted_[a.token], a, options_.repetition_penalty);
    }
    max = MaxLogit(adjusted_);
    if (!max.has_value()) return NothingLeftError(n_sampled_);
    adjusted = adjusted_;
  }
  SampledToken sampled;
  if (options_.temperature == 0.0f) {
    sampled.token = FirstIdOf(adjusted, *max);
  } else {
    sampled.token = DrawToken({adjusted, *max, options_.temperature, uniform(n_sampled_)},
                              {options_.top_k, options_.top_p, options_.min_p}, scratch_);
  }
  if (options_.logprobs.has_value()) Report(logits, sampled);
  LK_RETURN_IF_ERROR(Accept(sampled.token));
  return sampled;
}

absl::Status Sampler::Mask(absl::Span<const float> logits) {
  if (constraint_ == nullptr) {
    adjusted_.assign(logits.begin(), logits.end());
    return absl::OkStatus();
  }
  LK_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> words, constraint_->Mask());
  LK_CHECK(words.size() == (logits.size() + 63) / 64);
  adjusted_.assign(logits.size(), -std::numeric_limits<float>::infinity());
  for (size_t w = 0; w < words.size(); ++w) {
    const size_t first = 64 * w;
    if (words[w] == ~uint64_t{0}) {
      std::copy_n(logits.begin() + first, 64, adjusted_.begin() + first);
      continue;
    }
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      const size_t token = first + static_cast<size_t>(std::countr_zero(bits));
      adjusted_[token] = logits[token];
    }
  }
  return absl::OkStatus();
}

void Sampler::Report(absl::Span<const float> logits, SampledToken& sampled) const {
  const double log_sum = LogSumExp(logits, *MaxLogit(logits));
  sampled.logprob = LogprobOf(sampled.token, logits[sampled.token], log_sum).logprob;
  sampled.top_logprobs = TopOf(logits, *options_.logprobs, log_sum);
}

TokenLogprob LogprobOf(int32_t token, float logit, double log_sum) {
  return {token, static_cast<float>(logit - log_sum)};
}

float LogSoftmaxAt(absl::Span<const float> logits, int32_t token) {
  const std::optional<float> max = MaxLogit(logits);
  if (!max.has_value()) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(logits[token] - LogSumExp(logits, *max));
}

std::vector<TokenLogprob> TopLogprobs(absl::Span<const float> logits, int32_t n) {
  const std::optional<float> max = MaxLogit(logits);
  if (!max.has_value()) return {};
  return TopOf(logits, n, LogSumExp(logits, *max));
}

}  // namespace lowkey
