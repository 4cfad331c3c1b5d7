#ifndef LOWKEY_ENGINE_ATTENTION_ATP_FAR_TOKENS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_FAR_TOKENS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/attention/atp/top_tokens.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// The far blocks of one KV head at one layer that a block of rows reads. Every row sees every token
// of them but the sinks.
struct FarBlocks {
  // All of one shape. A merged block stands for blocks before it too.
  absl::Span<const std::shared_ptr<const PrincipalBlock>> blocks;
  int64_t layer = 0;
  int64_t kv_head = 0;

  int64_t n_tokens() const {
    return static_cast<int64_t>(blocks.size()) * blocks[0]->shape.n_tokens;
  }
};

// The score of a token that a row does not see.
inline constexpr float kHiddenScore = -std::numeric_limits<float>::infinity();

// Gives scratch room for n elements.
template <typename T>
void Grow(std::vector<T>& scratch, int64_t n) {
  if (static_cast<int64_t>(scratch.size()) < n) scratch.resize(n);
}

// Returns the sum of n floats, a multiple of 16, in 16 chains, whatever the vector width.
float SumInChains(const float* x, int64_t n);

// The far tokens of a block of rows: their scores, the weights that these become beside everything
// that is read exactly, and the tokens among them that are read whole. Holds the scratch of one
// thread, which is grown by Reserve and never inside a step.
class FarTokens {
 public:
  // The most rows, far tokens that they read, and far tokens that are read whole.
  struct Size {
    int64_t n_rows = 0;
    int64_t n_far_tokens = 0;
    int64_t n_refined = 0;
  };
  void Reserve(const AttentionGeometry& geometry, const PrincipalShape& shape, const Size& size);

  // By row and far token: the scores, which Join turns into weights.
  float* scores() { return scores_.data(); }
  const float* scores() const { return scores_.data(); }

  // Turns the scores [n_rows][n_far] into weights and brings rows and far weights to one maximum.
  void Join(int64_t n_far, RowBlock& rows);
  // Returns the score whose far weight is 1 after Join.
  float far_max(int64_t row) const { return far_maxima_[row]; }
  // Returns what a row's far weights are to be multiplied by after Join.
  float factor(int64_t row) const { return factors_[row]; }
  // Returns what turns a row's far weights into shares of all its weights, after Join.
  float share(int64_t row) const { return shares_[row]; }

  // Says how many tokens are wanted, and the least share that they have of a row's weights, summed
  // over the query heads of its token.
  struct Wanted {
    int64_t n = 0;
    float least_share = 0;
  };
  // Chooses, for the query heads of each token, the far tokens behind the sinks with the highest
  // shares. Takes their weights away unless the rest of tokens is kept.
  void Choose(const AttentionGeometry& geometry, const FarBlocks& far, const Wanted& wanted,
              int64_t n_rows);
  // The choices for a token's rows are [begin, end), ascending; `token` is the number of the token
  // among the rows.
  struct Choices {
    int64_t begin = 0, end = 0;
    int64_t n() const { return end - begin; }
  };
  Choices choices(int64_t token) const { return {first_choice_[token], first_choice_[token + 1]}; }
  int32_t chosen(int64_t choice) const { return chosen_[choice]; }
  // Returns those of a token's choices that are far tokens [begin, end).
  Choices ChoicesIn(int64_t token, int64_t begin, int64_t end) const;
  // Returns what is kept of a far block's tokens.
  const std::byte* kept(int64_t block) const { return kept_[block]; }
  // Part number `part` of n_parts of the tokens that were chosen for the first token's rows: asks
  // memory for them, and gathers them for ReadChosen. Parts may be gathered in parallel.
  void PrefetchChosen(const AttentionGeometry& geometry, const PrincipalShape& shape, int64_t part,
                      int64_t n_parts) const;
  void GatherChosen(const AttentionGeometry& geometry, const PrincipalShape& shape, int64_t part,
                    int64_t n_parts);
  // Reads all chosen tokens into the rows that they were chosen for. Those of the first token's
  // rows are gathered.
  void ReadChosen(const AttentionGeometry& geometry, const PrincipalShape& shape, RowBlock& rows);

 private:
  void ChooseFor(int64_t n_far, int64_t n_sinks, int64_t first_row, int64_t group,
                 const Wanted& wanted, bool takes);
  // Gathers choices, of which the first goes to place `to`.
  void Gather(const AttentionGeometry& geometry, const PrincipalShape& shape,
              const Choices& choices, int64_t to);
  // Reads the n tokens that are gathered into one token's rows.
  void ReadGathered(const AttentionGeometry& geometry, const PrincipalShape& shape, int64_t n,
                    int64_t first_row, RowBlock& rows);

  std::vector<float> scores_;
  std::vector<float> far_maxima_;  // by row
  std::vector<float> factors_;     // by row: the factor of far weights
  std::vector<float> shares_;      // by row: turns far weights into shares of all weights
  std::vector<float> weights_;     // by far token: summed over query heads
  std::vector<float> chosen_scores_;
  std::vector<const std::byte*> kept_;  // by far block
  std::vector<int64_t> first_choice_;   // by token, then the number of all choices
  std::vector<int32_t> chosen_;         // far tokens, one token's rows after another's
  std::vector<std::byte> chosen_keys_, chosen_values_;
  TopTokens top_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_FAR_TOKENS_H_
