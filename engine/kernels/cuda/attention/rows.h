#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_ROWS_H_

// Code that all kernels of exact attention share. Scores are logarithms of base 2.

#include "engine/base/round_up.h"
#include "engine/kernels/cuda/grid/mma.h"
#include "engine/kernels/device/attention.h"

namespace lowkey {

inline constexpr int kPageTokensInt = kPageTokens;

// The maximum of a row that has seen nothing.
__device__ inline float NoScore() { return __uint_as_float(0xff800000u); }

__device__ inline bool IsNoScore(float x) { return x == NoScore(); }

// The running softmax of one row: its maximum, and the sum of 2^(score - maximum).
struct RowState {
  float max, sum;
};

// Returns the base of a row's scores: the maximum, or any finite number where there is no maximum.
__device__ inline float BaseOf(float max) { return IsNoScore(max) ? 0.0f : max; }

// The result of folding one span into earlier ones. Sums over values become factor * before +
// span_factor * span, or exactly one of the two sums where the other span is empty.
struct RowFold {
  RowState joined;
  float factor, span_factor;
  bool before_is_empty;

  __device__ float Join(float before, float span) const {
    return before_is_empty ? span : fmaf(before, factor, span * span_factor);
  }
};

__device__ inline RowFold FoldRow(const RowState& before, const RowState& span) {
  RowFold fold;
  fold.before_is_empty = IsNoScore(before.max);
  if (fold.before_is_empty) {
    fold.joined = span;
    fold.factor = 0;
    fold.span_factor = 1;
    return fold;
  }
  const float max = fmaxf(before.max, span.max);
  fold.factor = Exp2(before.max - max);
  fold.span_factor = Exp2(span.max - max);
  fold.joined.max = max;
  fold.joined.sum = fmaf(before.sum, fold.factor, span.sum * fold.span_factor);
  return fold;
}

// The place of row `row` of a tile in the step.
struct RowPlace {
  int position;      // position of the row's token
  int64_t step_row;  // the token's row of the step
  int64_t head;      // index in the KV head's group
};

__device__ inline RowPlace PlaceOf(const RowTileTask& task, int64_t group, int row) {
  const auto flat = task.first + row, token = flat / static_cast<int>(group);
  return {task.first_position + token, int64_t{task.first_step_row} + token, flat - token * group};
}

__device__ inline const float* QueryOf(const AttendArgs& a, const RowPlace& row, int64_t kv_head) {
  return a.q + row.step_row * a.ld_q + (kv_head * a.group + row.head) * a.head_dim;
}

// Returns the place of a row's outputs in `out` and in `rounded`.
__device__ inline int64_t OutputAt(const AttendArgs& a, const RowPlace& row, int64_t kv_head) {
  return row.step_row * a.ld_out + (kv_head * a.group + row.head) * a.head_dim;
}

// Returns the index of a part's row in parts [.., head_dim] and states [.., 2].
__device__ inline int64_t PartOf(const AttendArgs& a, int64_t part_row, int64_t kv_head) {
  return part_row * a.n_kv_heads + kv_head;
}

// Returns the keys of one head in a page; its values follow.
template <typename T>
__device__ inline const T* KeysOf(const AttendArgs& a, const std::byte* page, int64_t kv_head) {
  const int64_t head = a.layer * a.n_kv_heads + kv_head;
  return reinterpret_cast<const T*>(page) + head * 2 * kPageTokensInt * a.head_dim;
}

// Returns the factor of queries: log2(e) / sqrt(head_dim).
__device__ inline float QueryScale(int64_t head_dim) {
  return 1.44269504088896341f / sqrtf(static_cast<float>(head_dim));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_ROWS_H_
