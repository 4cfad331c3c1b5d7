#ifndef LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_

#include <vector>

#include "engine/attention/atp/compress.h"
#include "engine/attention/atp/policy.h"
#include "engine/attention/atp/principal_rows.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Atp on the host.
class HostAtp : public AtpPolicy {
 public:
  explicit HostAtp(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

 private:
  // A segment's new blocks of one basis, in order; they are compress_tasks_[first_task] and every
  // n_bases-th one after it.
  struct MergeTask {
    int64_t first_task = 0;
    int64_t n_blocks = 0;
  };

  void PlanMerges();
  void PlanRows(int32_t segment_index, const Segment& segment);
  void CompressBlocks(int64_t layer);
  // Turns new blocks into what they stand for, merged with those before them.
  void MergeBlocks(int64_t layer);
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

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_
