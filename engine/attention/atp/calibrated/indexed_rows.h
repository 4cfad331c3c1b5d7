#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/attention/atp/calibrated/indexed_blocks.h"
#include "engine/attention/atp/calibrated/rest_rows.h"
#include "engine/attention/atp/far_tokens.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Reads far blocks of basis `calibrated` into the online softmax of a block of rows, after
// everything that the rows read exactly: all far tokens are scored by the index; the n_refined
// tokens with the highest share of the weights, summed over a token's query heads, are read from
// the kept keys and values, or from the index and the rest that is kept of them (rest_rows.h),
// unless their share is below kLeastShare; the values of the others from the index, or as the mean
// of all where a whole page weighs next to nothing. Holds the memory of one block of rows, which is
// grown by Reserve and never inside a step.
//
// The far tokens are cut into parts, whose work may be done in parallel: ScorePart of every part,
// then Choose, then ReadPart of every part, then Finish. The same parts are summed up wherever they
// were computed, so that the bits do not depend on it.
class IndexedRows {
 public:
  static constexpr int64_t kPartPages = TurnedMeans::kChunk;
  // Reading tokens of smaller shares whole changed SmolLM2's perplexity at 4,096 tokens by less
  // than its standard error, and took up to a ninth of a token's time.
  static constexpr float kLeastShare = 1.0f / 8192;
  // A page whose tokens together have less than this part of the share that each page would have
  // if all weighed the same, for every query head of a token, has the mean as its values.
  static constexpr float kLeastPageShare = 1.0f / 32;
  static int64_t NumParts(int64_t n_far_tokens);

  // The scratch of one thread.
  struct Scratch {
    void Reserve(const AttentionGeometry& geometry, const TokenIndex& index,
                 const FarTokens::Size& size);

    std::vector<float> low;       // [n_rows][components]
    std::vector<int8_t> rounded;  // the same
    std::vector<int32_t> sums;    // by row: of what is rounded
    std::vector<float> scales;    // by row
    std::vector<float> mean_scratch;
  };

  void Reserve(const AttentionGeometry& geometry, const PrincipalShape& shape,
               const FarTokens::Size& size);

  // `rows` has begun the task.
  void ScorePart(const IndexedBlocks& blocks, int64_t part, const RowBlock& rows, Scratch& scratch);
  // `rows` has everything that is read exactly; Finish goes on from what it is then.
  void Choose(const IndexedBlocks& blocks, RowBlock& rows);
  void ReadPart(const IndexedBlocks& blocks, int64_t part, int64_t n_rows);
  void Finish(const IndexedBlocks& blocks, RowBlock& rows);

  // Does all of it.
  void Add(const IndexedBlocks& blocks, RowBlock& rows, Scratch& scratch);

 private:
  // Adds the weights of a part's far tokens to the sums of a token's rows, ld numbers apart.
  // Returns the pages whose values are read: bit i is that of the part's page i.
  uint32_t AddWeights(const IndexedBlocks& blocks, int64_t part, int64_t first_row, float* sums,
                      int64_t ld) const;

  FarTokens far_;
  RestRows rest_;
  std::vector<float> mean_scores_;  // [n_rows][far tokens], for rest_
  // By part, row and component: the sums of weights times levels, then those of weights.
  std::vector<float> sums_;
  std::vector<uint32_t> counted_;  // by part and token: the pages whose values are read
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_INDEXED_ROWS_H_
