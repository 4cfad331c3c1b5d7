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
  // Pages before it are far, and those from it on are in the window, whose weights are exact. The
  // page after the rows' own where the model has no window.
  int64_t first_near_page = 0;
};

// The factors of scores of unit vectors at one layer, [n_heads] each; not read where the
// variant is plain.
struct TaylorTemperatures {
  absl::Span<const float> far, near;  // near: of tokens in the window
};

// Returns the factor that makes x [n] a unit vector.
float UnitScale(const float* x, int64_t n);

// Returns the most tokens of a task: a page of them for one query head per KV head, fewer for more
// heads.
int64_t TaylorTaskTokens(const AttentionGeometry& geometry);

// The sums of one task: Begin, then the state and pages in ascending order, then Finish. The state
// and far pages have weights 1 + s + s^2 / 2. Near pages have weights exp(s), summed apart under
// exp(-max) as softmax does; Finish joins both sums. Holds the scratch of one thread, which is
// grown by Reserve and never inside a step.
//
// Every operation on a row is a chain of its own, so its bits do not depend on the task it is in.
class TaylorRows {
 public:
  void Reserve(const AttentionGeometry& geometry);

  void Begin(const AttentionGeometry& geometry, const Segment& segment, const TaylorRowsTask& task,
             const LayerRows& rows, const TaylorTemperatures& temperatures);

  // Adds the page's tokens that a row sees by causality.
  void AddPage(const KvTile& tile, int64_t page);
  void AddNearPage(const KvTile& tile, int64_t page);
  // Adds one tile of the state, all of whose tokens come before the task's.
  void AddState(const TaylorShape& shape, int64_t tile, const TaylorTile& state);

  void Finish(const Segment& segment, const TaylorRowsTask& task, const LayerRows& rows);

 private:
  // Row r is query head r % group of token r / group.
  int64_t PositionOf(int64_t row) const { return first_position_ + row / geometry_.group(); }
  float* NearQuery(int64_t row) { return near_q_.data() + row * geometry_.key_dim(); }
  // Returns the number of a page's tokens, from the first, that any row sees.
  int64_t VisibleTokens(int64_t page) const;
  // Scores queries, which lie ld apart, against the page's first n_visible tokens.
  void Score(const float* queries, int64_t ld, const KvTile& tile, int64_t n_visible);
  // Adds the page's first n_visible values by their weights.
  void AddValues(const KvTile& tile, int64_t n_visible, std::vector<float>& out) const;
  // Joins row r's two sums in out_; returns the sum of their weights, both under one scale.
  float JoinWindow(int64_t r, int64_t n_far_tokens);
  void WriteFeatures(const TaylorShape& shape, int64_t tile);

  AttentionGeometry geometry_;
  int64_t first_position_ = 0, n_tokens_ = 0, n_rows_ = 0;
  bool has_window_ = false;
  bool scales_outputs_ = false;  // by sqrt(visible tokens / head_dim)
  std::vector<float> q_;         // [n_rows, 2 * key_dim]: each query twice
  std::vector<float> near_q_;    // [n_rows, key_dim]
  std::vector<float> scores_, features_, out_, weights_;
  std::vector<float> near_out_;
  std::vector<SoftmaxState> near_states_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_ROWS_H_
