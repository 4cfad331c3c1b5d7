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
               const TokenIndex& index, const FarTokens::Size& size);

  // Adds every far token after everything that is read exactly. All are scored by the index; the
  // n_refined tokens with the highest weight, summed over a token's query heads, are read from the
  // kept keys and values, the values of the others from the index.
  void Add(const AttentionGeometry& geometry, const TokenIndex& index, const FarBlocks& far,
           int64_t n_refined, RowBlock& rows);

 private:
  // Fills far_'s scores.
  void Score(const AttentionGeometry& geometry, const TokenIndex& index, const FarBlocks& far,
             const RowBlock& rows);
  // Adds the values of all far tokens under their remaining weights.
  void Read(const AttentionGeometry& geometry, const TokenIndex& index, const FarBlocks& far,
            RowBlock& rows);

  FarTokens far_;
  std::vector<float> levels_;           // [components][64]
  std::vector<float> low_q_, low_out_;  // by row and component, then the mean
  std::vector<float> weights_;          // [n_rows][64]
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_INDEXED_ROWS_H_
