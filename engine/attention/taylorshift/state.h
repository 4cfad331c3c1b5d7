#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_STATE_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"

namespace lowkey {

// The recurrent form of TaylorShift. With features phi such that phi(a) . phi(b) = 1 + a.b +
// (a.b)^2 / 2, the sum over cached tokens of weight times [v, 1] is phi(q) S, S = sum of phi(k)^T
// [v, 1]: a state whose size does not grow.
//
// phi(x) for queries [e], of length F = e + e (e + 1) / 2 + 1: x; then for turns t = 0, 1, .. e / 2
// the products x_j x_{(j + t) mod e}, which name every pair once (the last turn of an even e has e
// / 2 of them); then 1. For keys the squares, turn 0, are halved. In this order a run of features
// is a product of two rows of memory.
//
// Features are cut into tiles of about 256, so that a tile of S and of phi stays in L2.
struct TaylorShape {
  explicit TaylorShape(const AttentionGeometry& geometry);

  int64_t key_dim = 0;        // e
  int64_t n_columns = 0;      // columns of S without the weights: head_dim rounded up to the panel
  int64_t n_features = 0;     // F
  int64_t tile_features = 0;  // a multiple of key_dim
  int64_t n_tiles = 0;
  int64_t head_floats = 0;  // the size of one KV head's S at one layer

  int64_t TileBegin(int64_t tile) const { return tile * tile_features; }
  int64_t TileEnd(int64_t tile) const {
    return tile + 1 < n_tiles ? TileBegin(tile + 1) : n_features;
  }
  // The floats between rows of a tile's query features and of its weights, as DotRows takes them.
  int64_t TileStride(int64_t tile) const {
    return (TileEnd(tile) - TileBegin(tile) + 31) / 32 * 32;
  }
};

// The memory of a sequence beside the pages of its newest tokens.
struct TaylorState {
  std::shared_ptr<Slab> sums;   // S of every layer and KV head; null before the first fold
  int64_t n_state_tokens = 0;   // rows read these tokens in the sums alone; a multiple of 64
  int64_t n_folded_tokens = 0;  // tokens in the sums already; a multiple of 64

  void VisitSlabs(SlabVisitor visit) const {
    if (sums != nullptr) visit(*sums);
  }
};

int64_t TaylorSlabBytes(const AttentionGeometry& geometry);

// Returns the length from which rows read the state instead of cached tokens, a multiple of 64;
// nullopt: never. The length depends on nothing else, so that a sequence's outputs do not either.
// The window's tokens, which rows read exactly in both forms, come on top. For form recurrent it is
// the end of the first far chunk, where a state begins to exist. For form auto it is where reading
// the state begins to cost no more multiply-adds, F (d + 1) (1 + 1 / group) against n (e + d) a
// query head, and no more bytes, 4 F (d + 1) against n (e + d) of the cache's.
std::optional<int64_t> TaylorSwitchTokens(const AttentionGeometry& geometry,
                                          const TaylorShiftOptions& options,
                                          int64_t window_tokens = 0);

// One tile of S of one KV head at one layer:
//   sums     [n_columns / panel][TileEnd - TileBegin][panel]   sum of phi(k)^T v
//   weights  [TileStride]                                      sum of phi(k)^T, then zeros
struct TaylorTile {
  float* sums = nullptr;
  float* weights = nullptr;
};
TaylorTile TileOf(const AttentionGeometry& geometry, const TaylorShape& shape, Slab& slab,
                  int64_t layer, int64_t kv_head, int64_t tile);

// Adds a page's 64 tokens to a tile. Holds the scratch of one thread, grown by Reserve.
class TaylorFolder {
 public:
  void Reserve(const TaylorShape& shape);
  void Fold(const AttentionGeometry& geometry, const TaylorShape& shape, int64_t tile,
            const KvTile& page, const TaylorTile& state);

 private:
  std::vector<float> keys_;  // [2 * key_dim, 64]: K^T twice
  std::vector<float> features_;
  std::vector<float> ones_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_STATE_H_
