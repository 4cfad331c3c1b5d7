#include "tools/crossover_theory.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/config/projections.h"

namespace lowkey {
namespace {

constexpr int64_t kChunkTokens = 64;

// A token's multiply-adds of attention, in n D, and the numbers that the cache holds for it.
struct TheoryLine {
  Mechanism mechanism;
  int multiply_adds;
  const char* cached;
};
constexpr TheoryLine kTheoryLines[] = {
    {Mechanism::kStandard, 2, "2 D"},
    {Mechanism::kOptimised, 2, "2 D (keys and x)"},
    {Mechanism::kEfficient, 2, "D (x; keys are rotated where they are read)"},
    {Mechanism::kSuper, 3, "2 D (x and V'), over efficient"},
};

double Features(int64_t d) { return 1 + d + d * (d + 1) / 2; }

std::string Ceil(double x) { return absl::StrFormat("%.0f", std::ceil(x - 1e-9)); }

}  // namespace

double TaylorSpeedCrossover(int64_t head_dim) {
  const auto d = static_cast<double>(head_dim);
  return (4 * d * d * d + 10 * d * d + 8 * d + 3) / (4 * d + 6);
}

double TaylorMemoryCrossover(int64_t head_dim) {
  const auto d = static_cast<double>(head_dim);
  return 0.25 *
         (d * d + 2 * d + 1 + std::sqrt(d * d * d * d + 12 * d * d * d + 14 * d * d + 4 * d + 1));
}

double CausalPrefillCrossover(int64_t d, int64_t group) {
  return Features(d) * static_cast<double>(d + 1) * (1 + 1.0 / static_cast<double>(group)) /
             static_cast<double>(d) +
         kChunkTokens;
}

double CausalDecodeCrossover(int64_t d, int64_t group) {
  return Features(d) * static_cast<double>(d + 1) * (1 + 1.0 / static_cast<double>(group)) /
         (2.0 * static_cast<double>(d));
}

double CausalMemoryCrossover(int64_t d) {
  return Features(d) * static_cast<double>(d + 1) * 4 / (2.0 * static_cast<double>(d) * 2);
}

std::string TheoryText() {
  std::string text =
      "TaylorShift: lengths from which the recurrent form is the cheaper one\n\n"
      "              bidirectional (paper, Table 2)   causal, symmetric features\n"
      "  head_dim    speed N0     memory N1           prefill    decode     memory\n";
  for (int64_t d : {8, 16, 32, 64, 128}) {
    absl::StrAppend(
        &text, absl::StrFormat("  %-8d    %-9s    %-9s           %-7s    %-7s    %s\n", d,
                               Ceil(TaylorSpeedCrossover(d)), Ceil(TaylorMemoryCrossover(d)),
                               Ceil(CausalPrefillCrossover(d, 1)),
                               Ceil(CausalDecodeCrossover(d, 1)), Ceil(CausalMemoryCrossover(d))));
  }
  absl::StrAppend(&text,
                  "\nMultiply-adds of a token in one layer, hidden size D = h d, n tokens seen\n\n"
                  "  mechanism    projections    attention        cached numbers\n");
  for (const TheoryLine& line : kTheoryLines) {
    absl::StrAppend(
        &text, absl::StrFormat("  %-10s   %d D^2          %d n D            %s\n",
                               MechanismName(line.mechanism), ProjectionsOf(line.mechanism).Count(),
                               line.multiply_adds, line.cached));
  }
  absl::StrAppend(
      &text,
      "  (grouped keys and values shrink standard's projections and cache, not the others')\n");
  return text;
}

}  // namespace lowkey
