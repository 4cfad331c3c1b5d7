#ifndef LOWKEY_ENGINE_ATTENTION_ATP_INDEXED_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_INDEXED_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/attention/atp/far_tokens.h"
#include "engine/attention/atp/token_index.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Reads blocks of basis `calibrated` into the online softmax of a block of rows. Holds the scratch
// of one thread, which is grown by Reserve and never inside a step.
class IndexedRows {
 public:
  void Reserve(const AttentionGeometry& geometry, const PrincipalShape& shape,
               const FarTokens::Size& size);

  // Adds every far token after everything that is read exactly. All are scored by the index; the
  // n_refined tokens with the highest weight, summed over a token's query heads, are read from the
  // kept keys and values, the values of the others from the index.
  void Add(const AttentionGeometry& geometry, const TokenIndex& index, const FarBlocks& far,
           int64_t n_refined, RowBlock& rows);

 private:
  void FindPages(const AttentionGeometry& geometry, const FarBlocks& far);
  // Fills far_'s scores.
  void Score(const TokenIndex& index, const FarBlocks& far, const RowBlock& rows);
  // Rounds the rows' products with a half's components to 8 bits.
  void RoundRows(const TokenIndex::Half& half, int64_t n_rows);
  // Adds the values of all far tokens under their remaining weights.
  void Read(const AttentionGeometry& geometry, const TokenIndex& index, const FarBlocks& far,
            RowBlock& rows);

  FarTokens far_;
  std::vector<TokenIndex::Page> pages_;  // of the far blocks, then an empty one
  std::vector<float> low_;               // by row and component, then the mean
  std::vector<int8_t> rounded_;          // [n_rows][components]
  std::vector<float> scales_, means_;    // by row
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_INDEXED_ROWS_H_
