#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/sampling_arithmetic.h"

namespace lowkey {

// Drawing tokens where the logits are. Rows draw what engine/sampler's Sampler draws of the same
// logits, bit for bit. All pointers are the device's; everything is plain data, so that a step's
// parameters go up, and its results come down, in one piece each.

inline constexpr int32_t kMaxTopLogits = 20;

enum class SampleKind : int32_t {
  kMostLikely,  // the lowest id among equals
  kDraw,        // by `uniform`, after the filters
  kGiven,       // `token`: its logits are only reported
};
enum class SampleReport : int32_t { kToken, kLogprobs };

// One token to be drawn. Several may draw from one row of logits.
struct SampleRow {
  int64_t logits_row = 0;
  int64_t first_adjustment = 0;  // of SamplingArgs::adjustments, tokens distinct
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
  kBadLogits,    // NaN or +inf among them, or all are -inf
  kNothingLeft,  // all are -inf after biases and penalties
};

struct TopLogit {
  float logit = 0.0f;
  int32_t token = 0;
};

// The rest is set when the row reports it: of the logits before biases and penalties.
struct SampleResult {
  SampleOutcome outcome = SampleOutcome::kDrawn;
  int32_t token = 0;
  float logit = 0.0f;           // of the token
  float max = 0.0f;             // the largest
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
  // Of the rows: how many draw, how many report, and the most adjustments that one has.
  int64_t n_draws = 0, n_reports = 0, most_adjustments = 0;
  std::byte* scratch = nullptr;     // [SamplingScratchBytes(n_rows, vocab)], aligned to 64
  SampleResult* results = nullptr;  // [n_rows]
};

// A row of a step whose token is a result of the step before.
struct DrawnToken {
  int32_t row = 0;
  int32_t result = 0;
};

// tokens[drawn[i].row] = the token of results[drawn[i].result]; 0 where none could be drawn.
struct TakeDrawnArgs {
  const SampleResult* results = nullptr;
  const DrawnToken* drawn = nullptr;  // [n]
  int64_t n = 0;
  int32_t* tokens = nullptr;
};

// A sampler whose token of the step before its adjustments do not count yet: the last of its row's
// adjustments is free for it.
struct DrawnCount {
  int64_t first_adjustment = 0;
  int32_t n_adjustments = 0;  // with the free one, >= 1
  int32_t result = 0;         // of the step before
  int32_t repeats = 0;        // 1: a token that was drawn has LogitAdjustment::repeats
  float penalty = 0.0f;       // of a token that is drawn for the first time
};

// Counts those tokens in the adjustments, as the sampler would. Where a token has an adjustment
// already, the free one becomes the same.
struct CountDrawnArgs {
  const SampleResult* results = nullptr;
  const DrawnCount* counts = nullptr;  // [n]
  int64_t n = 0;
  LogitAdjustment* adjustments = nullptr;
  const float* next_penalties = nullptr;  // of each adjustment, with its token drawn once more
};

inline int64_t SumBlocksOf(int64_t vocab) { return (vocab + kSumBlock - 1) / kSumBlock; }

// A weight for each token, and some numbers for each block of tokens.
inline int64_t SamplingScratchBytes(int64_t n_rows, int64_t vocab) {
  constexpr int64_t kBlockBytes = 3 * sizeof(double) + 3 * sizeof(int32_t);
  const int64_t n_blocks = SumBlocksOf(vocab);
  return n_rows * n_blocks * (kBlockBytes + kSumBlock * static_cast<int64_t>(sizeof(float)));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_SAMPLING_H_
