#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_

#include <optional>

#include "engine/attention/attention.h"

namespace lowkey {

// 2 n head_dim multiply-adds for each query head and token that sees n, within the sliding window.
AttentionWork SoftmaxWork(const AttentionGeometry& geometry, int64_t n_tokens);

// Whether the options ask for 8 or 4 bits where a page is closed.
bool IsQuantized(const AttentionOptions& options);

// What a sequence of softmax attention holds, wherever that is computed: all its pages, or, where
// the options ask for 8 or 4 bits, what its closed pages were quantized to and the open one.
class StandardCacheMechanism : public AttentionMechanism {
 public:
  explicit StandardCacheMechanism(const AttentionContext& context) : context_(context) {}

  Mechanism id() const override { return Mechanism::kStandard; }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;

 protected:
  // Slabs of page_bytes for the pages that the segment's rows fill: the first one is that of its
  // first row. RESOURCE_EXHAUSTED leaves the sequence valid.
  absl::Status TakeClosedPages(const Segment& segment, int64_t page_bytes) const;

  const AttentionContext context_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_
