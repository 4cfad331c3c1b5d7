#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_HOST_H_

#include <optional>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/pages/row_block.h"
#include "engine/attention/standard/policy.h"

namespace lowkey {

// Softmax attention over cached keys and values, page by page with an online softmax. Spans of
// 1,024 positions have a softmax of their own and are joined in their order: few rows at depth are
// thus spread over all threads, and a row has the same bits whether it was spread or not.
//
// Where the options ask for 8 to 2 bits, a page is quantized in the step that fills it, layer by
// layer. A row reads its own page exactly and all earlier pages as they were quantized, and a
// closed page goes back to the pool at the step's end.
class HostStandard : public StandardPolicy {
 public:
  HostStandard(Mechanism id, const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

  // A piece is a page. Slices of the layer's input (optimised, efficient) have none.
  std::optional<PieceShape> piece_shape(const AttentionOptions& options) const override;
  absl::Span<const std::byte> PieceBytes(const SequenceCache& prefix, int64_t i) const override;
  absl::Status AppendPiece(SequenceCache& prefix, absl::Span<const std::byte> bytes) override;

 private:
  // Pages [first_page, end_page) that a task reads: all of its pages, or one span.
  struct Part {
    int32_t task = 0;
    int64_t first_page = 0, end_page = 0;
    std::optional<int64_t> saved;  // its index in saved_ until all parts are joined
  };
  // Spreads tasks where each thread has fewer than enough_tasks.
  void PlanParts(int64_t enough_tasks);
  void ReadPages(const LayerRows& rows, size_t part, RowBlock& block) const;
  // Returns where a part begins to read; nullptr for quantized pages and behind the last part.
  const std::byte* FirstTile(const LayerRows& rows, size_t part) const;
  // Joins the parts of tasks that were spread.
  void Join(const LayerRows& rows);
  struct CloseTask {
    int32_t segment = 0;
    int64_t page = 0;
  };

  absl::Status PlanPages(int32_t segment_index, const Segment& segment);
  void ClosePages(int64_t layer);

  absl::Span<const Segment> segments_;
  std::vector<RowBlockTask> tasks_;
  std::vector<Part> parts_;      // in the order of tasks_
  std::vector<int32_t> spread_;  // the first part of each task that has several
  std::vector<float> saved_;
  std::vector<CloseTask> close_tasks_;
  std::vector<RowBlock> row_blocks_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_HOST_H_
