#ifndef LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/attention/atp/top_tokens.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// The far blocks of one KV head at one layer that a block of rows reads. Every row sees every token
// of them but the sinks.
struct FarBlocks {
  // All of one shape. A merged block, for AddLinear alone, stands for blocks before it too.
  absl::Span<const std::shared_ptr<const PrincipalBlock>> blocks;
  int64_t layer = 0;
  int64_t kv_head = 0;
};

// Reads principal blocks (Eq. 7-8) into the online softmax of a block of rows. Holds the scratch of
// one thread, which is grown by Reserve and never inside a step.
class PrincipalRows {
 public:
  // The most rows, far tokens that they read, and far tokens that are read exactly.
  struct Size {
    int64_t n_rows = 0;
    int64_t n_far_tokens = 0;
    int64_t n_refined = 0;
  };
  void Reserve(const AttentionGeometry& geometry, const PrincipalShape& shape, const Size& size);

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
  // Adds the block's values under the weights that the scores have become, times factors_.
  void Read(const PrincipalBlock& block, const PrincipalView& view, const Scores& weights,
            RowBlock& rows);
  // Score and Read of a packed U: scores += low_q_ U^T, low_out_ += weights U.
  void ScorePacked(const PrincipalShape& shape, const PrincipalView& view, const Scores& scores,
                   int64_t n_rows);
  void ReadPacked(const PrincipalShape& shape, const PrincipalView& view, const Scores& weights,
                  int64_t n_rows);
  // Fills codes_ and code_scales_ with one group of a packed U.
  void Unpack(const PrincipalShape& shape, const PrincipalView& view, int64_t group);
  // Turns the far scores into weights and brings rows and far weights to one maximum.
  void JoinFar(int64_t n_far, RowBlock& rows);
  // Appends to chosen_ the far tokens to read exactly for the `group` query heads of one token,
  // whose rows begin at first_row, and takes their weights away.
  void Choose(int64_t n_far, int64_t n_sinks, int64_t first_row, int64_t n_refined, int64_t group);
  // Reads the far blocks under the remaining weights. The first n_first tokens of chosen_ are read
  // next.
  void ReadFar(const AttentionGeometry& g, const FarBlocks& far, int64_t n_first, RowBlock& rows);
  // Reads chosen far tokens exactly, for the query heads of one token.
  void ReadChosen(const AttentionGeometry& g, const PrincipalShape& shape,
                  absl::Span<const int32_t> tokens, int64_t first_row, RowBlock& rows);
  // Copies chosen tokens' kept keys and values.
  void Gather(const AttentionGeometry& g, const PrincipalShape& shape,
              absl::Span<const int32_t> tokens);
  // Returns a far token's kept key and value.
  const std::byte* Kept(const PrincipalShape& shape, int64_t token_bytes, int32_t token) const;

  std::vector<float> scores_, low_q_, low_out_;
  std::vector<int8_t> codes_;  // a packed U's: [rank, 32]
  std::vector<float> code_scales_, scaled_;
  std::vector<float> sums_;     // by row: sum of one block's weights
  std::vector<float> factors_;  // by row: the factor of far weights
  std::vector<float> shares_;   // by row: turns far weights into shares of all weights
  std::vector<float> weights_;  // by far token: summed over query heads
  std::vector<float> chosen_scores_;
  std::vector<PrincipalView> views_;  // by far block
  std::vector<int32_t> chosen_;       // far tokens, one token's rows after another's
  std::vector<std::byte> chosen_keys_, chosen_values_;
  TopTokens top_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_PRINCIPAL_ROWS_H_
