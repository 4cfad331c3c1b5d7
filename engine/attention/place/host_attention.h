#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_

#include <memory>
#include <utility>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// A mechanism that the device has no kernels for: the host attends, over a cache in its own memory,
// and waits for the device at every layer. What a sequence holds, costs and shares is the host's
// affair.
class HostAttention : public AttentionMechanism {
 public:
  // `host` was made for the host; context.place is set.
  HostAttention(std::unique_ptr<AttentionMechanism> host, const AttentionContext& context)
      : host_(std::move(host)), context_(context) {}

  Mechanism id() const override { return host_->id(); }
  absl::Status CheckAvailable(const AttentionOptions& options) const override {
    return host_->CheckAvailable(options);
  }
  std::optional<int64_t> max_tokens() const override { return host_->max_tokens(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override {
    return host_->BoundBytes(options, bound);
  }
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return host_->HeldBytes(options, n_tokens);
  }
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override {
    return host_->Work(options, n_tokens);
  }
  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    host_->Advance(sequence, n_rows);
  }
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    return host_->Prefix(sequence, n_computed, n_tokens);
  }
  PrefixReach prefix_reach() const override { return host_->prefix_reach(); }
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override {
    return host_->Report(sequences);
  }

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

 private:
  const std::unique_ptr<AttentionMechanism> host_;
  const AttentionContext context_;
  absl::Span<const Segment> segments_;
  std::vector<float> x_, qkv_, out_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
