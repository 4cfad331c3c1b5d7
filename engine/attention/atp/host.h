#ifndef LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_

#include <atomic>
#include <deque>
#include <vector>

#include "engine/attention/atp/calibrated/indexed_rows.h"
#include "engine/attention/atp/compress.h"
#include "engine/attention/atp/input_pages.h"
#include "engine/attention/atp/policy.h"
#include "engine/attention/atp/principal_rows.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Atp on the host.
class HostAtp : public AtpPolicy {
 public:
  explicit HostAtp(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  bool ReadsInputs() const override { return AnyHasInputs(segments_); }
  void Attend(const LayerRows& rows) override;

 private:
  // A segment's new blocks of one basis, in order: compress_tasks_[first_task] and every n_bases-th
  // task after it.
  struct MergeTask {
    int64_t first_task = 0;
    int64_t n_blocks = 0;
  };

  // A task whose far parts are work of their own.
  struct SpreadTask {
    int32_t task = 0;  // of row_tasks_
    int64_t n_parts = 0;
    IndexedRows rows;
    std::vector<float> near;  // a part of RowBlock: what is read exactly
    // Counts what is left of the work that is under way. The thread that does the last of it goes
    // on with what needs all of it.
    std::atomic<int64_t> n_left = 0;
  };

  void PlanMerges();
  void PlanRows(int32_t segment_index, const Segment& segment);
  void CompressBlocks(int64_t layer);
  // Merges new blocks with the blocks before them that they are to stand for.
  void MergeBlocks(int64_t layer);
  // Grows the scratch for a segment's rows. Returns the most tokens of a block of rows.
  int64_t ReserveRows(const Segment& segment);
  // Finds the tasks that are spread over the threads: where there are few tasks and basis
  // calibrated reads many far tokens.
  void PlanSpread();
  // Returns the far blocks of the task; block number blocks.size() is the first near one.
  FarBlocks FarOf(const RowBlockTask& task, int64_t layer) const;
  IndexedBlocks IndexedOf(const RowBlockTask& task, int64_t layer) const;
  void AttendRows(const LayerRows& rows, const RowBlockTask& task, int thread);
  // Begins the task and adds what its rows read exactly after far blocks that are read on their
  // own.
  void BeginRows(const LayerRows& rows, const RowBlockTask& task, int thread);
  void AttendSpread(const LayerRows& rows);
  // Scores part number `part` of a task, or reads exactly what is near where it is -1; chooses
  // tokens after the last one.
  void ScoreSpread(const LayerRows& rows, SpreadTask& spread, int64_t part, int thread);
  // Reads part number `part` of a task; ends the task after the last one.
  void ReadSpread(const LayerRows& rows, SpreadTask& spread, int64_t part, int thread);

  std::vector<RowBlockTask> row_tasks_;
  std::vector<bool> is_spread_;    // by task
  std::deque<SpreadTask> spread_;  // the first n_spread_; the others keep their memory
  size_t n_spread_ = 0;
  std::vector<MergeTask> merge_tasks_;
  std::vector<RowBlock> row_blocks_;           // by thread
  std::vector<PrincipalRows> far_rows_;        // by thread
  std::vector<IndexedRows> indexed_rows_;      // by thread
  std::vector<IndexedRows::Scratch> scratch_;  // by thread
  TurnedMeans::Pages turned_pages_;            // of far tokens; grown before a step
  std::vector<CompressWorkspace> workspaces_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_HOST_H_
