#ifndef LOWKEY_ENGINE_ATTENTION_PRINCIPAL_BLOCK_H_
#define LOWKEY_ENGINE_ATTENTION_PRINCIPAL_BLOCK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/lowrank/basis.h"

namespace lowkey {

// Sizes of a principal block, for one set of options and one model.
struct PrincipalShape {
  AtpBasis basis = AtpBasis::kLayer;
  int64_t n_tokens = 0;     // the block's length c, a multiple of 64
  int64_t rank = 0;         // r, 1..c
  int64_t rank_padded = 0;  // r + 1 (the means) rounded up to the kernels' panel

  int64_t n_bases(const AttentionGeometry& g) const {
    return basis == AtpBasis::kLayer ? 1 : g.n_kv_heads;
  }
  int64_t UBytes(const AttentionGeometry& g) const;      // one U
  int64_t KeyBytes(const AttentionGeometry& g) const;    // K' and mean key of one KV head
  int64_t ValueBytes(const AttentionGeometry& g) const;  // V' and mean value of one KV head
  int64_t LayerBytes(const AttentionGeometry& g) const;
  int64_t SlabBytes(const AttentionGeometry& g) const { return g.n_layers * LayerBytes(g); }
};

// Resolves the rank policy (attention.md "rank"): a fraction is of min(block, basis columns); a
// fixed rank is at most that.
PrincipalShape ShapeOf(const AttentionGeometry& geometry, const AtpOptions& options);

// One KV head's part of a block at one layer, in the cache type:
//   u       [c / 64][rank][64]            basis, transposed tile by tile
//   keys    [head_dim][rank_padded]       K'^T, the mean key in column `rank`
//   values  [rank + 1][head_dim_padded]   V', the mean value in row `rank`
struct PrincipalView {
  const std::byte* u = nullptr;
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

// c consecutive tokens of all layers as r principal keys and values around their means (ATP, Eq.
// 5-6): k ~ k_mean + U K', v ~ v_mean + U V'. The first n_sinks tokens are not part of it: their
// rows of U are zero.
struct PrincipalBlock {
  PrincipalShape shape;
  int64_t n_sinks = 0;
  std::shared_ptr<Slab> slab;

  PrincipalView View(const AttentionGeometry& geometry, int64_t layer, int64_t kv_head) const;
};

// Scratch of one thread.
struct CompressWorkspace {
  BasisWorkspace basis;
  std::vector<float> tokens;   // keys and values of one KV head
  std::vector<float> columns;  // the matrix whose basis is sought
  std::vector<float> u, u_transposed, projected;
  std::vector<float> means;
};

// Fills the block's layer from the exact pages that hold its tokens: pages[i] holds token 64 i of
// the block. For basis kv, one KV head's part (call once per KV head); for basis layer, all of them
// (kv_head is 0). Calls for different parts may run in parallel.
void CompressLayer(const AttentionGeometry& geometry, absl::Span<const PageHandle> pages,
                   int64_t layer, int64_t kv_head, CompressWorkspace& workspace,
                   PrincipalBlock& block);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PRINCIPAL_BLOCK_H_
