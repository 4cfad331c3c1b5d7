#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/sampling_arithmetic.h"

namespace lowkey {

// Drawing tokens on the device that computed the logits. A row draws the token that
// engine/sampler's Sampler draws from the same logits. All pointers are the device's; everything is
// plain data, so that a step's parameters go up, and its results come down, in one piece each.

inline constexpr int32_t kMaxTopLogits = 20;

enum class SampleKind : int32_t {
  kMostLikely,  // takes the lowest id among equals
  kDraw,        // draws by `uniform`, after the filters
  kGiven,       // takes `token`, whose logits are only reported
};
enum class SampleReport : int32_t { kToken, kLogprobs };

// One token to be drawn. Several tokens may be drawn from one row of logits.
struct SampleRow {
  int64_t logits_row = 0;
  int64_t first_adjustment = 0;  // index of SamplingArgs::adjustments; tokens are distinct
  int64_t first_mask_word = -1;  // index of SamplingArgs::mask_words; -1: every token may come
  double uniform = 0.0;          // in [0, 1)
  int32_t n_adjustments = 0;
  SampleKind kind = SampleKind::kMostLikely;
  int32_t token = 0;
  float temperature = 1.0f;  // > 0
  int32_t top_k = 0;         // 0, or vocab and more: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  float repetition_penalty = 1.0f;
  SampleReport report = SampleReport::kToken;
  int32_t n_top = 0;  // 0..kMaxTopLogits
};

enum class SampleOutcome : int32_t {
  kDrawn,
  kBadLogits,    // some logit is NaN or +inf, or all are -inf
  kNothingLeft,  // all logits are -inf after mask, biases and penalties
};

struct TopLogit {
  float logit = 0.0f;
  int32_t token = 0;
};

// SampleResult is the outcome of a draw. Fields from `logit` on are set where the row reports
// log-probabilities; they describe the logits before mask, biases and penalties.
struct SampleResult {
  SampleOutcome outcome = SampleOutcome::kDrawn;
  int32_t token = 0;
  float logit = 0.0f;           // the token's
  float max = 0.0f;             // the largest logit
  double exp_sum = 0.0;         // sum of exp(logit - max)
  TopLogit top[kMaxTopLogits];  // the min(n_top, vocab) largest, in order; among equals by id
};

struct SamplingArgs {
  const float* logits = nullptr;  // row i at logits + i * ld_logits
  int64_t ld_logits = 0;
  int64_t vocab = 0;                // 1..2^20
  const SampleRow* rows = nullptr;  // [n_rows]
  int64_t n_rows = 0;               // at most 65,535
  const LogitAdjustment* adjustments = nullptr;
  // Bit i % 64 of a row's word i / 64 says whether token i may come; ceil(vocab / 64) words a row.
  const uint64_t* mask_words = nullptr;
  // The numbers of rows that draw, that report, and that have a mask, and the most adjustments of
  // one row.
  int64_t n_draws = 0, n_reports = 0, n_masked = 0, most_adjustments = 0;
  std::byte* scratch = nullptr;     // [SamplingScratchBytes(n_rows, vocab)], aligned to 64
  SampleResult* results = nullptr;  // [n_rows]
};

// A row of a step whose token was drawn by the step before.
struct DrawnToken {
  int32_t row = 0;
  int32_t result = 0;
};

// tokens[drawn[i].row] = the token of results[drawn[i].result], 0 where no token could be drawn.
struct TakeDrawnArgs {
  const SampleResult* results = nullptr;
  const DrawnToken* drawn = nullptr;  // [n]
  int64_t n = 0;
  int32_t* tokens = nullptr;
};

// A sampler whose adjustments do not count the token that the step before drew: the last of its
// row's adjustments is free for that token.
struct DrawnCount {
  int64_t first_adjustment = 0;
  int32_t n_adjustments = 0;  // >= 1, with the free one
  int32_t result = 0;         // result of the step before
  int32_t repeats = 0;        // 1: a token that was drawn has LogitAdjustment::repeats
  float penalty = 0.0f;       // penalty of a token that is drawn for the first time
};

// Counts the drawn tokens in the adjustments, as the sampler would. Where a token has an adjustment
// already, the free one becomes equal to it.
struct CountDrawnArgs {
  const SampleResult* results = nullptr;
  const DrawnCount* counts = nullptr;  // [n]
  int64_t n = 0;
  LogitAdjustment* adjustments = nullptr;
  const float* next_penalties = nullptr;  // each adjustment's, once its token is drawn once more
};

inline int64_t SumBlocksOf(int64_t vocab) { return (vocab + kSumBlock - 1) / kSumBlock; }

// Returns bytes for a weight of each token, and some numbers of each block of tokens.
inline int64_t SamplingScratchBytes(int64_t n_rows, int64_t vocab) {
  constexpr int64_t kBlockBytes = 3 * sizeof(double) + 3 * sizeof(int32_t);
  const int64_t n_blocks = SumBlocksOf(vocab);
  return n_rows * n_blocks * (kBlockBytes + kSumBlock * static_cast<int64_t>(sizeof(float)));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_
