#ifndef LOWKEY_ENGINE_ATTENTION_ATP_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_H_

#include <memory>
#include <vector>

#include "engine/attention/atp/compress.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/attention/atp/principal_rows.h"
#include "engine/attention/attention.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// The first block that a row at `position` reads exactly; earlier ones are far.
int64_t FirstNearBlock(const SequenceCache& sequence, int64_t position);

// Attention on top principal keys (ATP, Niu et al.), Eq. 7 or 8. Blocks lie at multiples
// of block_tokens. Row i reads exactly: the sinks, and every token of block max(0, i / block -
// window) and later; everything between through principal keys, but for the `refine` tokens of it
// that matter most to the row, which are read from copies that their block keeps. With exact
// prefill, prompt rows read everything exactly. A block is compressed in the step that fills it,
// layer by layer, before that layer's rows attend; its pages go once no later row reads them.
class AtpAttention : public AttentionMechanism {
 public:
  explicit AtpAttention(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kAtp; }
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;

 protected:
  struct CompressTask {
    int32_t segment = 0;
    int32_t kv_head = 0;
    PrincipalBlock* block = nullptr;
    int64_t number = 0;  // the block's, in its sequence
  };

  // What a plan is wherever rows are computed: takes the pages and blocks that the step writes.
  absl::Status PlanCaches(absl::Span<const Segment> segments);

  const AttentionContext context_;
  absl::Span<const Segment> segments_;
  std::vector<CompressTask> compress_tasks_;

 private:
  // A segment's new blocks of one basis, in order; they are compress_tasks_[first_task] and every
  // n_bases-th one after it.
  struct MergeTask {
    int64_t first_task = 0;
    int64_t n_blocks = 0;
  };

  absl::Status PlanCache(int32_t segment_index, const Segment& segment);
  void PlanRows(int32_t segment_index, const Segment& segment);
  absl::Status PlanBlocks(int32_t segment_index, const Segment& segment);
  void CompressBlocks(int64_t layer);
  // Turns new blocks into what they stand for, merged with those before them.
  void MergeBlocks(int64_t layer);
  void FreeMerged(SequenceCache& sequence) const;
  // Scratch for a segment's rows; tokens of it that one block of rows may hold.
  int64_t ReserveRows(const Segment& segment);
  void AttendRows(const LayerRows& rows, const RowBlockTask& task, int thread);

  std::vector<RowBlockTask> row_tasks_;
  std::vector<MergeTask> merge_tasks_;
  std::vector<RowBlock> row_blocks_;           // by thread
  std::vector<PrincipalRows> far_rows_;        // by thread
  std::vector<CompressWorkspace> workspaces_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_H_
