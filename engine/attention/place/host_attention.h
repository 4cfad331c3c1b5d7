#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_

#include <memory>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// A mechanism that the device has no kernels for: the host attends, over a cache in its own memory,
// and waits for the device at every layer.
class HostAttention : public AttentionMechanism {
 public:
  // `mechanism` was made for the host.
  HostAttention(std::unique_ptr<AttentionMechanism> mechanism, const AttentionContext& context)
      : mechanism_(std::move(mechanism)), context_(context) {}

  Mechanism id() const override { return mechanism_->id(); }
  absl::Status CheckAvailable(const AttentionOptions& options) const override {
    return mechanism_->CheckAvailable(options);
  }
  std::optional<int64_t> max_tokens() const override { return mechanism_->max_tokens(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override {
    return mechanism_->BoundBytes(options, bound);
  }
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return mechanism_->HeldBytes(options, n_tokens);
  }
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override {
    return mechanism_->Work(options, n_tokens);
  }
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    mechanism_->Advance(sequence, n_rows);
  }
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    return mechanism_->Prefix(sequence, n_computed, n_tokens);
  }
  PrefixReach prefix_reach() const override { return mechanism_->prefix_reach(); }

 private:
  // Rows of the step's segments, from the first to the last.
  int64_t first_row() const;
  int64_t end_row() const;

  const std::unique_ptr<AttentionMechanism> mechanism_;
  const AttentionContext context_;
  absl::Span<const Segment> segments_;
  std::vector<float> x_, qkv_, out_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
