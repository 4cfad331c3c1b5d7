#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_

#include <memory>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// One mechanism computed in two ways: by a device's kernels, where they serve the options, and by
// the host; or over two kinds of cache. A sequence stays where its options send it, with its pages
// and slabs.
class RoutedAttention : public AttentionMechanism {
 public:
  using Serves = bool (*)(const AttentionOptions& options);

  // Both are the same mechanism, for sequences of the same lengths.
  RoutedAttention(std::unique_ptr<AttentionMechanism> first, Serves first_serves,
                  std::unique_ptr<AttentionMechanism> second);

  Mechanism id() const override { return second_->id(); }
  AttentionOptions Resolve(const AttentionOptions& options) const override {
    return first_->Resolve(options);
  }
  absl::Status CheckAvailable(const AttentionOptions& options) const override {
    return Of(options).CheckAvailable(options);
  }
  std::optional<int64_t> max_tokens() const override { return second_->max_tokens(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override {
    return Of(options).BoundBytes(options, bound);
  }
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return Of(options).HeldBytes(options, n_tokens);
  }
  int64_t SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                      int64_t n_tokens) const override {
    return Of(options).SharedBytes(options, n_prompt_tokens, n_tokens);
  }
  int64_t ReadBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return Of(options).ReadBytes(options, n_tokens);
  }
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override {
    return Of(options).Work(options, n_tokens);
  }

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // The first one's key, for steps that the second has no part in.
  std::optional<uint64_t> PlanKey() const override;
  bool ReadsInputs() const override;
  // Both answer as the first does where the second has no part in the step.
  const CacheSlots* PageWrites() const override {
    return second_segments_.empty() ? first_->PageWrites() : nullptr;
  }
  bool RoundsResults() const override {
    return second_segments_.empty() && first_->RoundsResults();
  }
  bool OnlyQueues(const AttentionOptions& options) const override {
    return Of(options).OnlyQueues(options);
  }
  void Attend(const LayerRows& rows) override;
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const override {
    return Of(sequence.options).RevocableRows(sequence, n_rows);
  }
  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    Of(sequence.options).Advance(sequence, n_rows);
  }
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    return Of(sequence.options).Prefix(sequence, n_computed, n_tokens);
  }
  std::optional<int64_t> part_tokens(const AttentionOptions& options) const override {
    return Of(options).part_tokens(options);
  }
  void AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                  SequenceCache& prefix) const override {
    Of(from.options).AppendPart(from, begin, end, prefix);
  }
  PrefixReach prefix_reach() const override { return second_->prefix_reach(); }
  std::optional<int64_t> prompt_block(const AttentionOptions& options) const override {
    return Of(options).prompt_block(options);
  }
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override {
    return Of(sequences[0]->options).Report(sequences);
  }

 private:
  AttentionMechanism& Of(const AttentionOptions& options) const {
    return first_serves_(options) ? *first_ : *second_;
  }

  const std::unique_ptr<AttentionMechanism> first_;
  const Serves first_serves_;
  const std::unique_ptr<AttentionMechanism> second_;
  std::vector<Segment> first_segments_, second_segments_;  // of the step
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_
