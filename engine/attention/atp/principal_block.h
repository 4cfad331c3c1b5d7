#ifndef LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_BLOCK_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_BLOCK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/attention/attention.h"

namespace lowkey {

// The number of tokens that share a scale in a packed U.
inline constexpr int64_t kBasisGroup = 32;

// The sizes of a principal block, for one set of options and one model. A block has one part for
// each layer and basis: U, if the block keeps it, and K' and V' of the KV heads that share it; for
// basis calibrated pages of the head's index (calibrated/token_index.h), and nothing else. For
// refine a block has the tokens themselves too.
struct PrincipalShape {
  AtpBasis basis = AtpBasis::kLayer;
  int64_t n_tokens = 0;       // the block's length c, a multiple of 64
  int64_t rank = 0;           // r, 1..c; the largest possible one where it depends on the data
  bool keeps_tokens = false;  // for refine
  bool keeps_basis = true;    // U; readout linear does not read it
  StorageType u_type = StorageType::kFloat32;
  bool packs_basis = false;                            // U in 4 bits
  StorageType principal_type = StorageType::kFloat32;  // of K' and V'
  StorageType kept_type = StorageType::kFloat32;
  bool packs_kept = false;  // kept tokens in 4 bits
  bool keeps_rest =
      false;  // kept tokens as what the index leaves of them (calibrated/token_rest.h)

  bool is_calibrated() const { return basis == AtpBasis::kCalibrated; }
  // Returns whether the KV heads of a layer share one basis.
  bool shares_basis() const { return basis != AtpBasis::kKv && !is_calibrated(); }
  int64_t n_bases(const AttentionGeometry& g) const { return shares_basis() ? 1 : g.n_kv_heads; }
  // Returns the columns of the matrix whose basis U is.
  int64_t n_basis_columns(const AttentionGeometry& g) const;
  int64_t n_parts(const AttentionGeometry& g) const { return g.n_layers * n_bases(g); }
  // The rows that hold the mean: int8 takes two, the second for the first one's rounding error.
  int64_t n_mean_rows() const { return principal_type == StorageType::kInt8 ? 2 : 1; }
  // Bytes of one U, and of kBasisGroup tokens of a packed U.
  int64_t UBytes(int64_t rank) const;
  int64_t UGroupBytes(int64_t rank) const { return rank * (kBasisGroup / 2 + 2); }
  int64_t KeyBytes(const AttentionGeometry& g, int64_t rank) const;    // for one KV head
  int64_t ValueBytes(const AttentionGeometry& g, int64_t rank) const;  // for one KV head
  int64_t KeptKeyBytes(const AttentionGeometry& g) const;              // of one token
  int64_t KeptValueBytes(const AttentionGeometry& g) const;            // of one token
  int64_t KeptTokenBytes(const AttentionGeometry& g) const;
  int64_t KeptBytes(const AttentionGeometry& g) const;  // for one KV head and layer
  int64_t PartBytes(const AttentionGeometry& g, int64_t rank) const;
  // The most bytes of a whole block.
  int64_t SlabBytes(const AttentionGeometry& g) const {
    return g.n_layers * g.n_kv_heads * KeptBytes(g) + n_parts(g) * PartBytes(g, rank);
  }
};

// Returns the shape that the options give. A fraction is a share of min(block, basis columns), and
// a fixed rank is at most that.
PrincipalShape ShapeOf(const AttentionGeometry& geometry, const AtpOptions& options);

// Returns whether kept tokens are stored in 4 bits.
bool PacksKeptTokens(const AtpOptions& options);

// One KV head's data in a block at one layer. Kept tokens lie in the slab first, so that the rest,
// which every step reads, lies close together.
//   u       [c / 64][rank][64]            basis, transposed tile by tile, in u_type; int8: the
//                                         columns' scales are in K' and V'; only if kept.
//           packed  [c / 32] of [rank] scales in bf16 and [rank][32] codes of 4 bits, as
//                                         KernelTable::unpack_codes takes them
//   keys    [rank + n_mean_rows][DotWidth]         K', then the mean key; zero beyond head_dim
//   values  [rank + n_mean_rows][head_dim_padded]  V', then the mean value
//   key_scales, value_scales              in int8: what each row is to be multiplied by
//   kept    [c][key, value]  every token's key [DotWidth] and value [head_dim_padded] side by side,
//                            so that one that is chosen is one stretch of memory, in int8 as
//                            quantized rows (quantized_kv.h); only if kept
//           packed  a key's codes and a quantized row of the value, side by side; behind all tokens
//                            [c / 32] the numbers of 32 keys (QuantizeKeys)
//           rest    every token's as calibrated/token_rest.h writes it, the key's and then the
//                            value's
struct PrincipalView {
  int64_t rank = 0;
  const std::byte* u = nullptr;
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
  const std::byte* kept = nullptr;
  const std::byte* index = nullptr;  // basis calibrated: [c / 64] pages, and nothing above but kept
};

// c consecutive tokens of all layers as r principal keys and values around their means (ATP, Eq.
// 5-6): k ~ k_mean + U K', v ~ v_mean + U V'. The first n_sinks tokens are not part of the block:
// their rows of U are zero.
//
// A merged block with number b (from 0) stands for the last 2^k blocks up to itself, where 2^k is
// the largest power of two that divides b + 1. The blocks before number f are therefore those that
// f - 1 stands for, then those that the next block before them stands for, and so on: one block for
// each bit of f.
struct PrincipalBlock {
  PrincipalShape shape;
  int64_t n_sinks = 0;
  std::shared_ptr<Slab> slab;
  std::vector<int32_t> ranks;    // by part: layer * n_bases + basis
  std::vector<int64_t> offsets;  // by part: its first byte in the slab
  int64_t n_blocks = 1;          // the number of blocks that it stands for
  int64_t kept_bytes = 0;        // of one KV head's kept tokens at one layer, since Allocate

  int64_t n_represented_tokens() const { return n_blocks * shape.n_tokens - n_sinks; }

  // Takes a slab for the largest ranks. RESOURCE_EXHAUSTED when the cache is full. A block's number
  // in its sequence says which part comes first: slabs begin on huge pages, and the same part of
  // all blocks, which are read one after another, would otherwise share a few sets of the
  // processor's caches.
  absl::Status Allocate(const AttentionGeometry& geometry, int64_t number, Cache& cache);
  PrincipalView View(const AttentionGeometry& geometry, int64_t layer, int64_t kv_head) const;
  // Gives back the bytes that the parts do not need. Called once all parts are compressed and
  // before other sequences share the block.
  void Trim(const AttentionGeometry& geometry);
  double MeanRank() const;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_BLOCK_H_
