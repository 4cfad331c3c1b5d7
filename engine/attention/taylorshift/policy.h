#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_POLICY_H_

#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/taylorshift/rows.h"
#include "engine/attention/taylorshift/state.h"

namespace lowkey {

// TaylorShift (Nauen et al. 2024), causal: weights 1 + s + s^2 / 2 instead of exp(s). Rows before
// TaylorSwitchTokens read cached keys and values (direct form). Later rows read the state, which
// holds all far chunks of 64 tokens, and the tokens after them directly (recurrent form). The two
// forms are equal up to rounding. Far are all whole chunks before a row's own one; where the
// model's weights come with a window, those before the window, whose tokens have weights exp(s).
// Chunks are folded into the state in order, each in the step whose rows need it first. The first
// such step builds the state from the cached tokens, whose pages go when it ends.
//
// The policy is the same in every place: the memory and cost of a sequence, and which rows a step
// folds and reads.
class TaylorShiftPolicy : public AttentionMechanism {
 public:
  Mechanism id() const override { return Mechanism::kTaylorShift; }
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override;
  // Shared are whole pages of the prompt, and the state until one of the sequences adds to it.
  int64_t SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                      int64_t n_tokens) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override;

 protected:
  // Pages of all KV heads that a segment's state takes in.
  struct FoldRange {
    int32_t segment = 0;
    int64_t first_page = 0, end_page = 0;
  };
  // Rows of a segment that read the same state, or none.
  struct ReadRange {
    int32_t segment = 0;
    int64_t first_position = 0;
    int64_t n_tokens = 0;
    int64_t n_state_tokens = 0;  // tokens read through the state; whole pages, 0 in the direct form
  };
  // Folds, and then the rows that read them. A segment has a round for each chunk.
  struct Round {
    std::vector<FoldRange> folds;
    std::vector<ReadRange> reads;
  };

  explicit TaylorShiftPolicy(const AttentionContext& context);

  const AttentionContext& context() const { return context_; }
  const TaylorShape& shape() const { return shape_; }
  // [n_layers, n_heads] each
  absl::Span<const float> tau() const { return tau_; }
  absl::Span<const float> tau_window() const { return tau_window_; }
  bool has_window() const { return window_tokens_ > 0; }
  TaylorTemperatures TemperaturesAt(int64_t layer) const;
  // Returns the first page whose tokens the rows of `page` read exactly; page + 1 without a window.
  int64_t FirstNearPage(int64_t page) const;
  // The segments and rounds of the last planned step.
  absl::Span<const Segment> segments() const { return segments_; }
  absl::Span<const Round> rounds() const {
    return absl::MakeConstSpan(rounds_).first(static_cast<size_t>(n_rounds_));
  }

 private:
  std::optional<int64_t> SwitchTokens(const AttentionOptions& options) const {
    return TaylorSwitchTokens(context_.geometry, options.taylorshift, window_tokens_);
  }
  // Returns the first page that rows of `page` do not read through the state.
  int64_t EndStatePage(int64_t page) const { return page - window_tokens_ / kPageTokens; }
  absl::Status PlanSegment(int32_t segment_index, const Segment& segment);
  int64_t PagesToFold(const SequenceCache& sequence, int64_t end) const;
  absl::Status TakeState(TaylorState& state, int64_t last_page) const;
  Round& RoundAt(int64_t index);

  const AttentionContext context_;
  const TaylorShape shape_;
  int64_t window_tokens_ = 0;
  std::optional<TaylorVariant> trained_variant_;
  std::vector<float> tau_, tau_window_;
  absl::Span<const Segment> segments_;
  std::vector<Round> rounds_;  // the first n_rounds_ are the step's
  int64_t n_rounds_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_POLICY_H_
