#ifndef LOWKEY_ENGINE_ATTENTION_LASSO_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_LASSO_HOST_H_

#include <cstdint>
#include <memory>
#include <utility>
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

// Weight-free attention ("Optimizing Attention", Eq. 2-4): row i of a head's slice of x, t_i, is
// rebuilt from rows 0..i-1 and some fixed ones, V, under an l1 penalty. A few steps of ADMM give
// the coefficients c; sign(c) |c|^power over the sum of magnitudes weighs the rows. No projections,
// no RoPE; row 0 without fixed rows has no sources: its output is 0. The inverse that every row
// needs comes from the eigenvectors of V^T V, [head_dim, head_dim], which grows row by row.
// Experimental: a row costs 4 * iterations * i * head_dim multiply-adds a head and an
// eigendecomposition. A prefix covers all computed rows: V^T V holds every row. There are no
// kernels for devices.
class HostLasso : public AttentionMechanism {
 public:
  // context.weights has lasso options.
  explicit HostLasso(const AttentionContext& context);

  Mechanism id() const override { return Mechanism::kLasso; }
  absl::Status CheckAvailable(const AttentionOptions&) const override {
    return RefuseSlidingWindow(geometry_, id());
  }
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;
  PrefixReach prefix_reach() const override { return PrefixReach::kAllRows; }

  absl::Status Plan(absl::Span<const Segment> segments) override;
  bool ReadsInputs() const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // The scratch of one thread, by source token: the sequence's pages, then fixed rows.
  struct Scratch {
    std::vector<float> target, sums, b0, b, y, c, z, w;
    std::vector<double> vectors, values, rotated;  // eigenvectors and eigenvalues of V^T V
  };

  int64_t PageBytes() const { return geometry_.n_layers * geometry_.n_heads * tile_bytes_; }
  int64_t GramBytes() const;
  absl::Status TakeGram(SequenceCache& sequence);
  // One head of one sequence at one layer.
  struct Place {
    SequenceCache* sequence = nullptr;
    int64_t layer = 0, head = 0;
  };
  double* Gram(const Place& at) const;
  std::byte* Tile(const Place& at, int64_t page) const;
  // Returns page `page` of a row's sources: the sequence's n_pages, then the fixed rows.
  std::pair<const void*, StorageType> SourceTile(const Place& at, int64_t page,
                                                 int64_t n_pages) const;
  void AddToGram(const std::vector<float>& row, double* gram) const;
  // Computes sums [head_dim] = V^T x, x by source.
  void Gather(const Place& at, int64_t n_pages, const std::vector<float>& x, float* sums) const;
  // Computes y = V u, y by source.
  void Spread(const Place& at, int64_t n_pages, const float* u, std::vector<float>& y) const;
  // Multiplies sums by the inverse of Eq. 3a or 4.
  void ApplyInverse(Scratch& scratch) const;
  void AttendRow(const Place& at, int64_t position, float* out, Scratch& t) const;

  const AttentionContext context_;
  const AttentionGeometry geometry_;
  const LassoOptions options_;
  const int64_t tile_bytes_;
  std::vector<float> fixed_;  // fixed rows as column tiles [.., head_dim, 64] in fp32
  absl::Span<const Segment> segments_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_LASSO_HOST_H_
