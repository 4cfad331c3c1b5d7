#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_REST_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_REST_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/attention/atp/calibrated/indexed_blocks.h"
#include "engine/attention/atp/far_tokens.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Reads chosen tokens whose rest is kept (token_rest.h) into a block of rows that read the others
// through their index. A chosen token's key and value are what the index has of them and the rest.
// It is taken from the others, whose weights are rounded to 8 bits of the largest in a page. Holds
// the memory of one block of rows, which is grown by Reserve and never inside a step. Used by
// IndexedRows, whose parts it has.
class RestRows {
 public:
  // A part is far tokens [begin, end); mean_scores holds by row and far token the score of the
  // mean of keys.
  struct Part {
    int64_t number = 0, begin = 0, end = 0;
    const float* mean_scores = nullptr;
  };

  void Reserve(const AttentionGeometry& geometry, const FarTokens::Size& size, int64_t n_parts);

  // After FarTokens::Choose: computes the rows' products with the components.
  void Begin(const IndexedBlocks& blocks, const RowBlock& rows);
  // Takes the weights of the chosen tokens of a part away, and sums up the rest of their values
  // under the weights that they have whole. Adds those weights, and what the index has of their
  // values, to index_sums: by row its components' sums, then that of weights. Parts may be read in
  // parallel.
  void ReadPart(const IndexedBlocks& blocks, const Part& part, int64_t n_rows, FarTokens& far,
                float* index_sums);
  // Adds the values of all parts to the rows.
  void Finish(const IndexedBlocks& blocks, int64_t n_parts, const FarTokens& far, RowBlock& rows);

 private:
  // Chosen says which of the choices for the rows of one token are read together.
  struct Chosen {
    int64_t first_row = 0;
    FarTokens::Choices choices;
    const float* mean_scores = nullptr;
  };
  struct PartSums {
    float *rest = nullptr, *lead = nullptr;
  };
  void Gather(const IndexedBlocks& blocks, const FarTokens::Choices& chosen, const FarTokens& far);
  void ReadChosen(const IndexedBlocks& blocks, const Chosen& chosen, const PartSums& sums,
                  FarTokens& far);

  // These hold by row the products with the numbers of keys that the index has, and that it leaves.
  std::vector<float> lead_queries_, queries_;
  // By choice: the levels and scales of what the index has of the key and of the value, and leaves.
  std::vector<int8_t> lead_key_levels_, key_levels_, lead_value_levels_, value_levels_;
  std::vector<float> lead_key_scales_, key_scales_, lead_value_scales_, value_scales_;
  // By row and choice: the parts of the score, and the weight times either scale of the value.
  std::vector<float> lead_scores_, scores_, lead_weights_, weights_;
  std::vector<float> lead_sums_, sums_;  // by part and row
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_REST_ROWS_H_
