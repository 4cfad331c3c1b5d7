#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_BLOCKS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_BLOCKS_H_

#include <cstdint>

#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/atp/far_tokens.h"

namespace lowkey {

// Far blocks of basis `calibrated` that a block of rows reads through their index.
struct IndexedBlocks {
  const AttentionGeometry& geometry;
  const TokenIndex& index;
  FarBlocks far;
  int64_t n_refined = 0;            // the most tokens that each token's rows read whole
  const TurnedMeans::Pages& pages;  // those of all far tokens

  const PrincipalShape& shape() const { return far.blocks[0]->shape; }
  const TokenIndex::Half& keys() const { return index.keys(far.layer, far.kv_head); }
  const TokenIndex::Half& values() const { return index.values(far.layer, far.kv_head); }
  const TokenRest::Half& rest_keys() const { return index.rest().keys(far.layer, far.kv_head); }
  const TokenRest::Half& rest_values() const { return index.rest().values(far.layer, far.kv_head); }
  TokenIndex::Page page(int64_t number) const;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_BLOCKS_H_
