#ifndef LOWKEY_TOOLS_CROSSOVER_THEORY_H_
#define LOWKEY_TOOLS_CROSSOVER_THEORY_H_

#include <cstdint>
#include <string>

namespace lowkey {

// The papers' formulas; nothing is measured.

// Return TaylorShift's Table 2: lengths from which the efficient form takes fewer operations (N0,
// Eq. 6) and less memory (N1, Eq. 7) than the direct one, both bidirectional, for a head of d.
double TaylorSpeedCrossover(int64_t d);
double TaylorMemoryCrossover(int64_t d);

// Return the same for causal attention with symmetric features, F = 1 + d + d (d + 1) / 2, and
// `group` query heads for each KV head.
double CausalPrefillCrossover(int64_t d, int64_t group);  // in chunks of 64
double CausalDecodeCrossover(int64_t d, int64_t group);
double CausalMemoryCrossover(int64_t d);  // an fp32 state against bf16 keys and values

// Returns a table of all of these for d = 8..128, and the multiply-adds of standard, Optimised,
// Efficient and Super Attention per token and layer.
std::string TheoryText();

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CROSSOVER_THEORY_H_
