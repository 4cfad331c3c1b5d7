#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_

#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// Returns 2 n head_dim multiply-adds for each query head and token that sees n, within the sliding
// window.
AttentionWork SoftmaxWork(const AttentionGeometry& geometry, int64_t n_tokens);

// Says whether the options ask for 8 to 2 bits where a page is closed.
bool IsQuantized(const AttentionOptions& options);

// Says whether the options ask for prefixes in a calibrated code.
bool CodesPrefixes(const AttentionOptions& options);

// A block of a prompt in the calibrated code (coded_prefix.h).
struct CodedPromptBlock {
  std::shared_ptr<Slab> code;  // held: by a prefix, and by a sequence whose pages it will become
  std::weak_ptr<Slab> known;   // the same code, or null once nobody holds it
};

// The memory of a sequence beside its exact pages. Where the options ask for 8 to 2 bits, its
// closed pages, quantized: on the host they are laid out as quantized_kv.h says, on a device as its
// kernels do. Where prefixes are coded, the first blocks of the prompt.
struct StandardState {
  std::vector<std::shared_ptr<Slab>> closed_pages;
  std::vector<CodedPromptBlock> coded_blocks;
  void VisitSlabs(SlabVisitor visit) const {
    VisitAll(closed_pages, visit);
    for (const CodedPromptBlock& block : coded_blocks) {
      if (block.code != nullptr) visit(*block.code);
    }
  }
};

// The policy of softmax attention, the same in every place: a sequence holds all its pages, or its
// closed pages quantized and the open one exactly. Mechanisms whose keys or values are slices of
// the layer's input (optimised, efficient) differ from standard in their weight sets alone.
class StandardPolicy : public AttentionMechanism {
 public:
  StandardPolicy(Mechanism id, const AttentionContext& context) : context_(context), id_(id) {}

  Mechanism id() const override { return id_; }
  // FAILED_PRECONDITION for coded prefixes, which CodedStandard has.
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  // A page that is quantized in vain costs more than a step without drafts.
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const override {
    if (!IsQuantized(sequence.options)) return n_rows;
    return RowsToNextEnd(sequence.n_tokens, n_rows, kPageTokens);
  }
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  std::optional<int64_t> part_tokens(const AttentionOptions&) const override { return kPageTokens; }
  void AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                  SequenceCache& prefix) const override;

 protected:
  // Takes slabs of page_bytes for the pages that the segment's rows fill, from the page of its
  // first row on. RESOURCE_EXHAUSTED leaves the sequence valid.
  absl::Status TakeClosedPages(const Segment& segment, int64_t page_bytes) const;

  const AttentionContext context_;

 private:
  const Mechanism id_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_POLICY_H_
