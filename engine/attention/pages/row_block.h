#ifndef LOWKEY_ENGINE_ATTENTION_PAGES_ROW_BLOCK_H_
#define LOWKEY_ENGINE_ATTENTION_PAGES_ROW_BLOCK_H_

#include <cstdint>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/buffer.h"

namespace lowkey {

// Rows that read the same tiles: consecutive tokens of one sequence times the query heads of one KV
// head.
struct RowBlockTask {
  int32_t segment = 0;
  int32_t kv_head = 0;
  int64_t first_row = 0;  // within the segment
  int64_t n_tokens = 0;
};

// Absolute positions that no block of rows may straddle, and its most tokens.
struct RowCuts {
  std::optional<int64_t> every = {};  // multiples of this
  std::optional<int64_t> at = {};
  std::optional<int64_t> max_tokens = {};
};

// Returns the tokens of a block of at most about 48 query rows, 192 with a matrix unit.
int64_t MaxRowBlockTokens(const AttentionGeometry& geometry);
// Returns the tokens of a block that reads pages alone. Where pages are packed its rows share that:
// about 192 query rows at most, 768 for a matrix unit. It is MaxRowBlockTokens where they are not,
// and with a sliding window.
int64_t MaxPageBlockTokens(const AttentionGeometry& geometry);

// Cuts [0, n_rows) of a segment into blocks of at most MaxRowBlockTokens, or cuts.max_tokens, and
// at cuts.every and cuts.at; appends a task for every block and KV head, latest block first (it
// reads most).
void AppendRowBlocks(const AttentionGeometry& geometry, int32_t segment_index,
                     const Segment& segment, const RowCuts& cuts, std::vector<RowBlockTask>& tasks);

// 64 tokens of one head: keys [head_dim, 64] in key_type, and values [head_dim, 64] in the cache's
// type.
struct ColumnTile {
  const void* keys = nullptr;
  StorageType key_type = StorageType::kFloat32;
  const void* values = nullptr;
  const void* next_keys = nullptr;  // the keys of the tile that is read after this one: a hint
};

// The online softmax of one row block: Begin, then tiles in ascending order of position, then
// Finish. Holds the scratch of one thread, which is grown by Reserve and never inside a step.
// Scores are scaled by 1 / sqrt(head_dim).
//
// Every operation on a row is a chain of its own, so its bits do not depend on the block it is in,
// where the values of later tokens are finite: a row that does not see them adds 0 times them.
class RowBlock {
 public:
  // Takes memory for blocks of n_tokens.
  void Reserve(const AttentionGeometry& geometry, int64_t n_tokens);
  void Reserve(const AttentionGeometry& geometry) {
    Reserve(geometry, MaxRowBlockTokens(geometry));
  }

  void Begin(const AttentionGeometry& geometry, const Segment& segment, const RowBlockTask& task,
             const LayerRows& rows);

  // Adds one exact page's tokens before `end` (absolute) that a row may see by causality and
  // sliding window.
  void AddPage(const KvTile& tile, int64_t page, int64_t end);
  // Adds the same tokens of a page whose tiles hold tokens as columns.
  void AddColumns(const ColumnTile& tile, int64_t page, int64_t end);
  // Adds a quantized page before all rows: they see all of it within the sliding window. `next` is
  // the tile that is added next.
  void AddQuantized(const QuantizedTile& tile, const QuantizedTile& next, int64_t page);

  // Sets aside everything added since Begin or the last Fold, and begins anew. Finish joins all
  // parts in their order; a part that nothing was added to changes nothing.
  void Fold();
  // SavePart and FoldPart fold in two places, to the bit: a part is PartFloats() floats, computed
  // by one block and folded into another that has begun the same task. TakePart goes on from it.
  int64_t PartFloats() const { return n_rows_ * (out_stride() + 2); }
  void SavePart(float* part) const;
  void TakePart(const float* part);
  void FoldPart(const float* part) {
    TakePart(part);
    Fold();
  }

  void Finish(const Segment& segment, const RowBlockTask& task, const LayerRows& rows);

  int64_t first_position() const { return first_position_; }
  int64_t last_position() const { return first_position_ + n_tokens_ - 1; }

  // The rows, for code that adds data that does not lie in a page. Row r is query head r % group of
  // token r / group: its scaled query [q_stride], zero beyond head_dim; the sum of values so far
  // [out_stride], under weights exp(score - state.max); and the state.
  int64_t n_rows() const { return n_rows_; }
  int64_t q_stride() const { return q_stride_; }
  const float* q(int64_t row) const { return q_.data() + row * q_stride_; }
  int64_t out_stride() const { return out_stride_; }
  float* out(int64_t row) { return out_.data() + row * out_stride(); }
  SoftmaxState& state(int64_t row) { return states_[row]; }

 private:
  int64_t PositionOf(int64_t row) const { return first_position_ + row / geometry_.group(); }
  // Returns the tokens of a page before `end` that a row sees, which are perhaps none.
  PageSlots VisibleTo(int64_t row, int64_t page, int64_t end) const;
  // Returns whether every row sees a whole page.
  bool SeesAll(int64_t page, int64_t end) const;
  void Restart();
  // Returns the number of a page's tokens, from the first, that a row sees: less than 1 for a row
  // before the page.
  int64_t VisibleTokens(int64_t row, int64_t page, int64_t end) const;
  // Strip names rows [first, first + n) that read a page together: scores_ and bf16_weights_ have
  // theirs.
  struct Strip {
    int64_t first = 0, n = 0;
  };
  // Adds a page strip by strip. The functions multiply GemmArgs by the page's keys and values,
  // whose place and layout they set, perhaps with the next values, which then have weight 0.
  template <class MultiplyKeys, class MultiplyValues>
  void AddStrips(int64_t page, int64_t end, const MultiplyKeys& multiply_keys,
                 const MultiplyValues& multiply_values);
  // Adds a page whose keys and first value_steps values are in key_pairs_ and value_pairs_.
  void AddPacked(int64_t page, int64_t end, int64_t value_steps);
  // Returns whether a matrix unit reads pages for these rows, with AttendPairs.
  bool UsesUnit() const;
  // Adds a page whose keys and values are in key_pairs_ and value_pairs_.
  void AttendPairs(int64_t page, int64_t end);
  // Describes a quantized page's keys or values as ColumnGroups does, but with scales and middles
  // [n_groups][stride] in bf16.
  struct TileHalf {
    const int8_t* codes = nullptr;
    int64_t row_stride = 0, group_stride = 0;
    const uint16_t *scales = nullptr, *middles = nullptr;
    int64_t n_groups = 0, stride = 0;
  };
  // Describe a tile's halves; codes of fewer than 8 bits are unpacked into codes_.
  TileHalf Keys(const QuantizedTile& tile);
  TileHalf Values(const QuantizedTile& tile);
  // Widens scales and middles into numbers_, which the next call overwrites.
  ColumnGroups Widen(const TileHalf& half);
  // Returns a quantized tile's codes [n] as int8.
  const int8_t* Codes(const QuantizedTile& tile, const std::byte* codes, int64_t n);
  // Turns a page's scores into weights, in their place or rounded in bf16_weights_.
  void Weigh(const Strip& strip, int64_t page, int64_t end, bool rounds);

  AttentionGeometry geometry_;
  int64_t first_position_ = 0, n_tokens_ = 0, n_rows_ = 0;
  int64_t q_stride_ = 0, out_stride_ = 0;
  AlignedVector<float> q_, scores_, out_;
  AlignedVector<SoftmaxState> states_;
  AlignedVector<float> folded_out_;  // the parts folded so far
  std::vector<SoftmaxState> folded_states_;
  std::vector<int8_t> codes_;     // a page's keys or values, unpacked
  std::vector<float> numbers_;    // scales, then middles, of all groups of a page's keys or values
  AlignedVector<float> widened_;  // a page's keys, then its values
  AlignedVector<uint16_t> bf16_q_, bf16_weights_;  // q_ and scores_, rounded
  // A page's keys and values, packed.
  AlignedVector<uint16_t> key_pairs_, value_pairs_;
  std::vector<PageSlots> visible_;  // a page's, by rows
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PAGES_ROW_BLOCK_H_
