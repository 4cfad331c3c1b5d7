#ifndef LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/attention/atp/far_tokens.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Reads principal blocks (Eq. 7-8) into the online softmax of a block of rows. Holds the scratch of
// one thread, which is grown by Reserve and never inside a step.
class PrincipalRows {
 public:
  void Reserve(const AttentionGeometry& geometry, const PrincipalShape& shape,
               const FarTokens::Size& size);

  // Adds every far token through its principal keys and values, block by block.
  void Add(const AttentionGeometry& geometry, const FarBlocks& far, RowBlock& rows);

  // Adds every far token by the blocks' moments (readout linear, Eq. 8): a block weighs as much as
  // normally distributed keys with its mean and second moments weigh on average.
  void AddLinear(const AttentionGeometry& geometry, const FarBlocks& far, RowBlock& rows);

  // Adds every far token after everything that is read exactly: the n_refined tokens with the
  // highest weight, summed over a token's query heads, are scored and read from the kept keys and
  // values, the others as in Add.
  void AddRefined(const AttentionGeometry& geometry, const FarBlocks& far, int64_t n_refined,
                  RowBlock& rows);

 private:
  // Fills low_q_ with [q K'^T, q k_mean] of every row.
  void Project(const AttentionGeometry& g, const PrincipalShape& shape, const PrincipalView& view,
               const RowBlock& rows);
  // The scores of a block's tokens; row i is at data + i * stride.
  struct Scores {
    float* data = nullptr;
    int64_t stride = 0;
  };
  // Scores a block's tokens. `next` is the block scored next: its U is prefetched.
  void Score(const AttentionGeometry& g, const PrincipalBlock& block, const PrincipalView& view,
             const PrincipalView& next, const RowBlock& rows, const Scores& scores);
  // Adds the block's values under the weights that the scores have become. If they were joined, far
  // factors multiply them.
  void Read(const PrincipalBlock& block, const PrincipalView& view, const Scores& weights,
            bool is_joined, RowBlock& rows);
  // Score and Read of a packed U: scores += low_q_ U^T, low_out_ += weights U.
  void ScorePacked(const PrincipalShape& shape, const PrincipalView& view, const Scores& scores,
                   int64_t n_rows);
  void ReadPacked(const PrincipalShape& shape, const PrincipalView& view, const Scores& weights,
                  int64_t n_rows);
  // Fills codes_ and code_scales_ with one group of a packed U.
  void Unpack(const PrincipalShape& shape, const PrincipalView& view, int64_t group);
  // Reads the far blocks under the remaining weights.
  void ReadFar(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows);

  FarTokens far_;
  std::vector<float> low_q_, low_out_;
  std::vector<int8_t> codes_;  // a packed U's: [rank, 32]
  std::vector<float> code_scales_, scaled_;
  std::vector<float> sums_;           // by row: sum of one block's weights
  std::vector<PrincipalView> views_;  // by far block
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_
