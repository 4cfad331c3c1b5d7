#ifndef LOWKEY_ENGINE_ATTENTION_ATP_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/attention/attention.h"

namespace lowkey {

// The memory of a sequence beside the pages that are read exactly.
struct AtpState {
  // The blocks by number; null once another block stands for it.
  std::vector<std::shared_ptr<const PrincipalBlock>> blocks;
  // Basis input: the layers' inputs of the open block (input_pages.h), by page; null before it.
  std::vector<std::shared_ptr<Slab>> input_pages;

  void VisitSlabs(SlabVisitor visit) const {
    for (const auto& block : blocks) {
      if (block != nullptr) visit(*block->slab);
    }
    VisitAll(input_pages, visit);
  }
};

// Returns the first block that a row at `position` reads exactly; earlier blocks are far.
int64_t FirstNearBlock(const SequenceCache& sequence, int64_t position);

// Attention on top principal keys (ATP, Niu et al.), Eq. 7 or 8. Blocks lie at multiples of
// block_tokens. Row i reads exactly: the sinks, and every token of block max(0, i / block - window)
// and later. It reads everything between through principal keys, except for the `refine` tokens
// there that matter most to the row, which are read from copies that their block keeps. With exact
// prefill, prompt rows read everything exactly. A block is compressed in the step that fills it,
// layer by layer, before that layer's rows attend; its pages go once no later row reads them.
//
// The policy is the same in every place: the memory and cost of a sequence, and the blocks that a
// step compresses.
class AtpPolicy : public AttentionMechanism {
 public:
  explicit AtpPolicy(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kAtp; }
  // A device has no kernels for calibrated codes: its presets are block forms.
  AttentionOptions Resolve(const AttentionOptions& options) const override;
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const override;
  int64_t SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                      int64_t n_tokens) const override;
  int64_t ReadBytes(const AttentionOptions& options, int64_t n_tokens) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  // Blocks are compressed once, from tokens that the sequence keeps.
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const override {
    return RowsToNextEnd(sequence.n_tokens, n_rows, sequence.options.atp.block_tokens);
  }
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override;

 protected:
  struct CompressTask {
    int32_t segment = 0;
    int32_t kv_head = 0;
    PrincipalBlock* block = nullptr;
    int64_t number = 0;  // the block's number in its sequence
  };

  // Takes the pages and blocks that the step writes, and lists the blocks that it compresses.
  absl::Status PlanCaches(absl::Span<const Segment> segments);

  const AttentionContext context_;
  const std::optional<TokenIndex> index_;  // of a model that was calibrated
  absl::Span<const Segment> segments_;
  std::vector<CompressTask> compress_tasks_;  // by segment, then block, then basis

 private:
  absl::Status PlanCache(int32_t segment_index, const Segment& segment);
  absl::Status PlanBlocks(int32_t segment_index, const Segment& segment);
  void FreeMerged(SequenceCache& sequence) const;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_POLICY_H_
