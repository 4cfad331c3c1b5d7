#ifndef LOWKEY_TOOLS_CROSSOVER_THEORY_H_
#define LOWKEY_TOOLS_CROSSOVER_THEORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/model_config.h"

namespace lowkey {

// The papers' formulas; nothing is measured.

// Return TaylorShift's Table 2: lengths from which the efficient form takes fewer operations (N0,
// Eq. 6) and less memory (N1, Eq. 7) than the direct one, both bidirectional, for a head of d.
double TaylorSpeedCrossover(int64_t d);
double TaylorMemoryCrossover(int64_t d);

// A head of causal TaylorShift with symmetric features.
struct TaylorHead {
  int64_t head_dim = 0;                   // d, numbers of a value
  int64_t group = 1;                      // query heads for each KV head
  std::optional<int64_t> score_dim = {};  // e, numbers of a key; head_dim if unset
  int64_t window_tokens = 0;              // that every row reads exactly

  int64_t key_dim() const { return score_dim.value_or(head_dim); }
};

// Returns F = 1 + e + e (e + 1) / 2, and the numbers of a KV head's state: F (d + 1).
int64_t TaylorFeatures(int64_t key_dim);
int64_t TaylorStateNumbers(const TaylorHead& head);

// Return the same lengths for such a head.
double CausalPrefillCrossover(const TaylorHead& head);  // in chunks of 64
double CausalDecodeCrossover(const TaylorHead& head);
double CausalMemoryCrossover(const TaylorHead& head);  // an fp32 state, bf16 keys and values

// Returns a table of all of these for d = 8..128, and the multiply-adds of standard, Optimised,
// Efficient and Super Attention per token and layer.
std::string TheoryText();

// Returns tables of the lengths for one model: for its heads and for other splits of its hidden
// size into heads of their own keys and values ("TaylorShift", section 4.3), and for narrower
// scores. `config` is that of the model's taylorshift weights where it brings some.
std::string ModelTheoryText(const ModelConfig& config, int64_t window_tokens);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CROSSOVER_THEORY_H_
