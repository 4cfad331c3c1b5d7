#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/taylorshift/state.h"

namespace lowkey {

// Rows that read the same tokens: consecutive ones of one sequence, within one page, times the
// query heads of one KV head.
struct TaylorRowsTask {
  int32_t segment = 0;
  int32_t kv_head = 0;
  int64_t first_position = 0;
  int64_t n_tokens = 0;
  int64_t n_state_tokens = 0;  // tokens read through the state; whole pages, 0 in the direct form
};

// Returns the factor that makes x [n] a unit vector.
float UnitScale(const float* x, int64_t n);

// Returns the most tokens of a task: a page of them for one query head per KV head, fewer for more
// heads.
int64_t TaylorTaskTokens(const AttentionGeometry& geometry);

// The sums of one task: Begin, then the state or pages in ascending order, then Finish. Holds the
// scratch of one thread, which is grown by Reserve and never inside a step.
//
// Every operation on a row is a chain of its own, so its bits do not depend on the task it is in.
class TaylorRows {
 public:
  void Reserve(const AttentionGeometry& geometry);

  // tau [n_heads] of the layer; read where the variant is normalized.
  void Begin(const AttentionGeometry& geometry, const Segment& segment, const TaylorRowsTask& task,
             const LayerRows& rows, absl::Span<const float> tau);

  // Adds the page's tokens that a row sees by causality.
  void AddPage(const KvTile& tile, int64_t page);
  // Adds one tile of the state, all of whose tokens come before the task's.
  void AddState(const TaylorShape& shape, int64_t tile, const TaylorTile& state);

  void Finish(const Segment& segment, const TaylorRowsTask& task, const LayerRows& rows);

 private:
  // Row r is query head r % group of token r / group.
  int64_t PositionOf(int64_t row) const { return first_position_ + row / geometry_.group(); }
  void WriteFeatures(const TaylorShape& shape, int64_t tile);

  AttentionGeometry geometry_;
  TaylorVariant variant_ = TaylorVariant::kNormalized;
  int64_t first_position_ = 0, n_tokens_ = 0, n_rows_ = 0;
  std::vector<float> q_;  // [n_rows, 2 * head_dim]: each query twice
  std::vector<float> scores_, features_, out_, weights_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_ROWS_H_
