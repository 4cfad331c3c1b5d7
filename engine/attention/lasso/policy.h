#ifndef LOWKEY_ENGINE_ATTENTION_LASSO_POLICY_H_
#define LOWKEY_ENGINE_ATTENTION_LASSO_POLICY_H_

#include <memory>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// The memory of a sequence: x of every token as column tiles (column_pages.h), [n_layers][n_heads]
// tiles per page, and V^T V in double, [n_layers][n_heads][head_dim][head_dim].
struct LassoState {
  std::vector<std::shared_ptr<Slab>> input_pages;
  std::shared_ptr<Slab> gram;

  void VisitSlabs(SlabVisitor visit) const {
    VisitAll(input_pages, visit);
    VisitAll({gram}, visit);
  }
};

// The memory and cost of lasso. A prefix covers all computed rows: V^T V holds every row.
class LassoPolicy : public AttentionMechanism {
 public:
  // context.weights has lasso options.
  explicit LassoPolicy(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kLasso; }
  absl::Status CheckAvailable(const AttentionOptions&) const override {
    return RefuseSlidingWindow(geometry_, id());
  }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  PrefixReach prefix_reach() const override { return PrefixReach::kAllRows; }

 protected:
  int64_t PageBytes() const { return geometry_.n_layers * geometry_.n_heads * tile_bytes_; }
  int64_t GramBytes() const;

  const AttentionContext context_;
  const AttentionGeometry geometry_;
  const LassoOptions options_;
  const int64_t tile_bytes_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_LASSO_POLICY_H_
