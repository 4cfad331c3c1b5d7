#ifndef LOWKEY_TESTS_ENGINE_ATTENTION_TOY_MECHANISM_H_
#define LOWKEY_TESTS_ENGINE_ATTENTION_TOY_MECHANISM_H_

#include "engine/attention/attention.h"

namespace lowkey {

// The example of docs/add_a_mechanism.md: a row's output is the mean of the values of its own page
// of 64 tokens, as far as it has come. It is in no registry and has no name of its own.
class PageMeanAttention : public AttentionMechanism {
 public:
  explicit PageMeanAttention(const AttentionContext& context) : context_(context) {}

  Mechanism id() const override { return Mechanism::kStandard; }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;

 private:
  AttentionContext context_;
  absl::Span<const Segment> segments_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_ATTENTION_TOY_MECHANISM_H_
