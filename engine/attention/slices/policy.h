#ifndef LOWKEY_ENGINE_ATTENTION_SLICES_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_SLICES_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/config/projections.h"

namespace lowkey {

// The memory of a sequence: pages of 64 tokens; for each layer
//   keys     [n_kv_heads][head_dim][64]  if projected
//   values   [n_kv_heads][head_dim][64]  slices or projected
//   aligned  [n_kv_heads][head_dim][64]  if aligned
// in the cache's type, a token being a column.
struct SliceState {
  std::vector<std::shared_ptr<Slab>> pages;
  void VisitSlabs(SlabVisitor visit) const { VisitAll(pages, visit); }
};

// Softmax attention whose keys are slices of x, the layer's input, that are cached as they are and
// rotated where they are read (efficient without stored keys), and whose values may be mixed over
// earlier tokens, V' = tril(Wa) V (super, over projected keys too).
//
// The policy is the same in every place. context.weights has inverse_frequencies and, if values are
// aligned, alignment; it outlives this.
class SlicePolicy : public AttentionMechanism {
 public:
  SlicePolicy(Mechanism id, const AttentionContext& context);

  Mechanism id() const override { return id_; }
  std::optional<int64_t> max_tokens() const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  int64_t RevocableRows(const SequenceCache&, int64_t n_rows) const override { return n_rows; }
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  std::optional<int64_t> part_tokens(const AttentionOptions&) const override { return kPageTokens; }
  void AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                  SequenceCache& prefix) const override;

 protected:
  bool IsAligned() const { return id_ == Mechanism::kSuper; }
  int64_t PageBytes() const { return geometry_.n_layers * layer_bytes_; }
  absl::Status TakeOwnPages(const Segment& segment) const;
  // Makes rotations_ reach n_pages, if keys are rotated at all.
  void GrowRotations(int64_t n_pages);
  // Returns the floats of one page's rotations.
  int64_t RotationFloats() const;

  const Mechanism id_;
  const AttentionContext context_;
  const AttentionGeometry geometry_;
  const int64_t n_key_heads_;  // 0 when keys are slices
  const int64_t tile_bytes_;
  const int64_t layer_bytes_;
  std::vector<float> rotations_;  // by page: cos, then sin, [head_dim / 2, 64] each
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SLICES_POLICY_H_
