#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_

#include <memory>
#include <utility>
#include <vector>

#include "engine/attention/place/forwarded_attention.h"

namespace lowkey {

// A mechanism that the device has no kernels for: the host attends, over a cache in its own memory,
// and waits for the device at every layer. What a sequence holds, costs and shares is the host's
// affair.
class HostAttention : public ForwardedAttention {
 public:
  // `host` was made for the host; context.place is set.
  HostAttention(std::unique_ptr<AttentionMechanism> host, const AttentionContext& context)
      : ForwardedAttention(std::move(host)), context_(context) {}

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

 private:
  const AttentionContext context_;
  absl::Span<const Segment> segments_;
  std::vector<float> x_, qkv_, out_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_HOST_ATTENTION_H_
