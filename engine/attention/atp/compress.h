#ifndef LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/lowrank/basis.h"

namespace lowkey {

// Scratch of one thread.
struct CompressWorkspace {
  BasisWorkspace basis;
  std::vector<float> tokens;   // keys and values of one KV head
  std::vector<float> columns;  // the matrix whose basis is sought
  std::vector<float> u, u_transposed, projected;
  std::vector<float> u_scales;  // by component: what stored U is to be multiplied by
  std::vector<float> means;
  std::vector<float> merged;  // what two blocks hold of the KV heads that share a basis
};

// Which part of a block: for basis kv, one KV head's (call once per KV head); for the others, all
// of them (kv_head is 0).
struct CompressPart {
  int64_t layer = 0;
  int64_t kv_head = 0;
};

// A block's tokens: pages[i] and, for basis input, inputs[i] (input_pages.h) hold token 64 i and
// those after it.
struct BlockTokens {
  absl::Span<const PageHandle> pages;
  absl::Span<const std::shared_ptr<Slab>> inputs = {};
};

// Fills a part from the exact tokens of the block (of the last one, if it is to stand for more).
// Rank and decomposition are those of the options that gave the block its shape. Calls for
// different parts may run in parallel.
void CompressLayer(const AttentionGeometry& geometry, const AtpOptions& options,
                   const BlockTokens& tokens, const CompressPart& part,
                   CompressWorkspace& workspace, PrincipalBlock& block);

// The part of `block` stands for as many blocks as `left`, its neighbor before them; makes it
// stand for both, at the larger of their ranks (readout linear): it is all that the two blocks'
// moments are of. Leaves block.n_blocks, which counts all that it is to stand for.
void MergeLayer(const AttentionGeometry& geometry, const AtpOptions& options,
                const PrincipalBlock& left, const CompressPart& part, CompressWorkspace& workspace,
                PrincipalBlock& block);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_COMPRESS_H_
