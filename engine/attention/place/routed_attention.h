#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_

#include <memory>
#include <vector>

#include "engine/attention/place/forwarded_attention.h"

namespace lowkey {

// One mechanism in two places: a device's kernels compute sequences of the options that they serve,
// and the host computes all others. A sequence stays where its options send it, with its pages and
// slabs.
class RoutedAttention : public ForwardedAttention {
 public:
  using Serves = bool (*)(const AttentionOptions& options);

  // Both are the same mechanism.
  RoutedAttention(std::unique_ptr<AttentionMechanism> device, Serves device_serves,
                  std::unique_ptr<AttentionMechanism> host);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // The device's key, for steps that the host has no part in.
  std::optional<uint64_t> PlanKey() const override;
  bool OnlyQueues(const AttentionOptions& options) const override {
    return Of(options).OnlyQueues(options);
  }
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    Of(sequence.options).Advance(sequence, n_rows);
  }

 private:
  AttentionMechanism& Of(const AttentionOptions& options) const {
    return device_serves_(options) ? *device_ : host();
  }

  const std::unique_ptr<AttentionMechanism> device_;
  const Serves device_serves_;
  std::vector<Segment> device_segments_, host_segments_;  // of the step
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_ROUTED_ATTENTION_H_
