#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_

#include <memory>
#include <utility>

#include "engine/attention/attention.h"

namespace lowkey {

// A mechanism whose policy (what a sequence holds, costs and shares) is that of another one, which
// was made for the host.
class ForwardedAttention : public AttentionMechanism {
 public:
  explicit ForwardedAttention(std::unique_ptr<AttentionMechanism> host) : host_(std::move(host)) {}

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

 protected:
  AttentionMechanism& host() const { return *host_; }

 private:
  const std::unique_ptr<AttentionMechanism> host_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_
