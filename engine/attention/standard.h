#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_H_

#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/row_block.h"

namespace lowkey {

// 2 n head_dim multiply-adds for each query head and token that sees n, within the sliding window.
AttentionWork SoftmaxWork(const AttentionGeometry& geometry, int64_t n_tokens);

// Softmax attention over cached keys and values, page by page with an online softmax.
class StandardAttention : public AttentionMechanism {
 public:
  explicit StandardAttention(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kStandard; }
  bool exact() const override { return true; }
  absl::Status CheckAvailable(const AttentionOptions&) const override { return absl::OkStatus(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;

 private:
  AttentionContext context_;
  absl::Span<const Segment> segments_;
  std::vector<RowBlockTask> tasks_;
  std::vector<RowBlock> row_blocks_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_H_
