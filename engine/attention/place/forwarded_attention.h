#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_

#include <memory>
#include <utility>

#include "engine/attention/attention.h"

namespace lowkey {

// ForwardedAttention is the base of a mechanism that wraps a real one in order to change or watch
// the computation alone. It answers every question about options, memory, cost and prefixes as the
// real mechanism does, so that a subclass defines only Plan and Attend: HostAttention computes on
// the host what a device has no kernels for, WatchedAttention hands the rows to a calibration.
class ForwardedAttention : public AttentionMechanism {
 public:
  explicit ForwardedAttention(std::unique_ptr<AttentionMechanism> real) : real_(std::move(real)) {}

  Mechanism id() const override { return real_->id(); }
  AttentionOptions Resolve(const AttentionOptions& options) const override {
    return real_->Resolve(options);
  }
  absl::Status CheckAvailable(const AttentionOptions& options) const override {
    return real_->CheckAvailable(options);
  }
  std::optional<int64_t> max_tokens() const override { return real_->max_tokens(); }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override {
    return real_->BoundBytes(options, bound);
  }
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return real_->HeldBytes(options, n_tokens);
  }
  int64_t SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                      int64_t n_tokens) const override {
    return real_->SharedBytes(options, n_prompt_tokens, n_tokens);
  }
  int64_t ReadBytes(const AttentionOptions& options, int64_t n_tokens) const override {
    return real_->ReadBytes(options, n_tokens);
  }
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override {
    return real_->Work(options, n_tokens);
  }
  bool ReadsInputs() const override { return real_->ReadsInputs(); }
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const override {
    return real_->RevocableRows(sequence, n_rows);
  }
  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    real_->Advance(sequence, n_rows);
  }
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    return real_->Prefix(sequence, n_computed, n_tokens);
  }
  std::optional<int64_t> part_tokens(const AttentionOptions& options) const override {
    return real_->part_tokens(options);
  }
  void AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                  SequenceCache& prefix) const override {
    real_->AppendPart(from, begin, end, prefix);
  }
  PrefixReach prefix_reach() const override { return real_->prefix_reach(); }
  std::optional<int64_t> prompt_block(const AttentionOptions& options) const override {
    return real_->prompt_block(options);
  }
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override {
    return real_->Report(sequences);
  }

 protected:
  AttentionMechanism& real() const { return *real_; }

 private:
  const std::unique_ptr<AttentionMechanism> real_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_FORWARDED_ATTENTION_H_
