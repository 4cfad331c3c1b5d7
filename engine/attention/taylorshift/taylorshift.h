#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_TAYLORSHIFT_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_TAYLORSHIFT_H_

#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/taylorshift/rows.h"
#include "engine/attention/taylorshift/state.h"

namespace lowkey {

// TaylorShift (Nauen et al. 2024), causal: weights 1 + s + s^2 / 2 instead of exp(s). Rows before
// TaylorSwitchTokens read cached keys and values (direct form), later ones the state of all whole
// chunks of 64 tokens before theirs, and their own chunk's tokens directly (recurrent form). The
// two are equal up to rounding. Chunks are folded into the state in order, each in the step whose
// rows need it first; the first such step builds the state from the cached tokens. Their pages go
// when it ends.
class TaylorShiftAttention : public AttentionMechanism {
 public:
  explicit TaylorShiftAttention(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kTaylorShift; }
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;

 private:
  struct FoldTask {
    int32_t segment = 0;
    int32_t kv_head = 0;
    int64_t tile = 0;
    int64_t first_page = 0, end_page = 0;
  };
  // Folds, and then the rows that read what was folded. A segment has a round for each chunk.
  struct Round {
    std::vector<FoldTask> folds;
    std::vector<TaylorRowsTask> reads;
  };

  absl::Status PlanSegment(int32_t segment_index, const Segment& segment);
  int64_t PagesToFold(const SequenceCache& sequence, int64_t end) const;
  absl::Status TakeState(SequenceCache& sequence, int64_t last_page) const;
  Round& RoundAt(int64_t index);
  void AppendFolds(Round& round, int32_t segment_index, int64_t first_page, int64_t end_page) const;
  void AppendReads(Round& round, TaylorRowsTask rows) const;
  void Fold(int64_t layer, const FoldTask& task, TaylorFolder& folder) const;
  void Read(const LayerRows& rows, const TaylorRowsTask& task, TaylorRows& block) const;

  const AttentionContext context_;
  const TaylorShape shape_;
  std::vector<float> tau_;  // [n_layers, n_heads]
  absl::Span<const Segment> segments_;
  std::vector<Round> rounds_;  // the first n_rounds_ are the step's
  int64_t n_rounds_ = 0;
  std::vector<TaylorRows> blocks_;     // by thread
  std::vector<TaylorFolder> folders_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_TAYLORSHIFT_H_
