#ifndef LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/lowrank/basis.h"

namespace lowkey {

// The scratch of one thread.
struct CompressWorkspace {
  BasisWorkspace basis;
  std::vector<float> tokens;   // keys and values of one KV head
  std::vector<float> columns;  // the matrix whose basis is sought
  std::vector<float> u, u_transposed, projected;
  std::vector<float> u_scales;  // by component: the factor of stored U
  std::vector<float> means;
  std::vector<float> merged;  // both blocks' rows of the KV heads that share a basis
  TokenIndex::Scratch code;   // of the index
};

// A part of a block: for basis kv and calibrated, the part of one KV head; for the others, all KV
// heads (kv_head is 0).
struct CompressPart {
  int64_t layer = 0;
  int64_t kv_head = 0;
};

// The tokens of a block: pages[i] and, for basis input, inputs[i] (input_pages.h) hold token 64 i
// and the 63 after it.
struct BlockTokens {
  absl::Span<const PageHandle> pages;
  absl::Span<const std::shared_ptr<Slab>> inputs = {};
  int64_t first_page = 0;  // its number in the sequence
};

// Fills a part from the exact tokens of the block (of the last block, if it is to stand for
// several). The options are those that gave the block its shape. Calls for different parts may run
// in parallel.
void CompressLayer(const AttentionGeometry& geometry, const AtpOptions& options,
                   const BlockTokens& tokens, const CompressPart& part,
                   CompressWorkspace& workspace, PrincipalBlock& block);

// The same for basis calibrated: fills the part's index, and keeps its tokens for refine.
void IndexLayer(const AttentionGeometry& geometry, const TokenIndex& index,
                const BlockTokens& tokens, const CompressPart& part, CompressWorkspace& workspace,
                PrincipalBlock& block);

// Merges `left` into a part of `block`, its next neighbor, which stands for as many blocks as
// `left` does. The part then stands for both, at the larger of their ranks, and keeps the two
// blocks' joint moments, which is all that readout linear reads. Leaves block.n_blocks, which
// counts all blocks that it is to stand for.
void MergeLayer(const AttentionGeometry& geometry, const AtpOptions& options,
                const PrincipalBlock& left, const CompressPart& part, CompressWorkspace& workspace,
                PrincipalBlock& block);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_
