#include "tools/crossover_theory.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/report/page.h"
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

std::string Ceil(double x) { return absl::StrFormat("%.0f", std::ceil(x - 1e-9)); }

// Multiply-adds per number of the state: each query head of the group reads it, and the KV head
// folds into it.
double ReadAndFold(const TaylorHead& head) { return 1 + 1.0 / static_cast<double>(head.group); }

// Returns the far tokens whose keys and values cost as much as the state does, at a cost per number
// of the state that is `cost` times that of a number of a key or value.
double FarCrossover(const TaylorHead& head, double cost) {
  return cost * static_cast<double>(TaylorStateNumbers(head)) /
         static_cast<double>(head.key_dim() + head.head_dim);
}

std::vector<std::string> Lengths(const TaylorHead& head) {
  return {Ceil(CausalPrefillCrossover(head)), Ceil(CausalDecodeCrossover(head)),
          Ceil(CausalMemoryCrossover(head))};
}

void Append(std::vector<std::string>& row, const std::vector<std::string>& cells) {
  row.insert(row.end(), cells.begin(), cells.end());
}

// Bytes of the fp32 states of n_heads, in one layer.
std::string StateText(const TaylorHead& head, int64_t n_heads) {
  constexpr double kKilobyte = 1e3;
  const auto bytes = static_cast<double>(4 * n_heads * TaylorStateNumbers(head));
  return absl::StrFormat("%.0f KB", bytes / kKilobyte);
}

// The model's heads as they are, and its hidden size in heads of 8, 16, .. numbers.
ReportTable SplitTable(const ModelConfig& c) {
  ReportTable table{"Heads against dimension",
                    {"heads", "kv", "head_dim", "N0", "N1", "prefill", "decode", "memory",
                     "F (d + 1)", "states of a layer"}};
  const auto add = [&](int64_t n_heads, int64_t n_kv_heads, int64_t head_dim) {
    const TaylorHead head{head_dim, n_heads / n_kv_heads};
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {absl::StrCat(n_heads), absl::StrCat(n_kv_heads), absl::StrCat(head_dim),
           Ceil(TaylorSpeedCrossover(head_dim)), Ceil(TaylorMemoryCrossover(head_dim))};
    Append(row, Lengths(head));
    Append(row, {absl::StrCat(TaylorStateNumbers(head)), StateText(head, n_kv_heads)});
  };
  add(c.n_heads, c.n_kv_heads, c.head_dim);
  for (int64_t d = 8; d <= 256 && d <= c.hidden_dim; d *= 2) {
    if (c.hidden_dim % d != 0) continue;
    const int64_t n_heads = c.hidden_dim / d;
    if (d != c.head_dim || n_heads != c.n_kv_heads) add(n_heads, n_heads, d);
  }
  return table;
}

ReportTable ScoreTable(const ModelConfig& c, int64_t window_tokens) {
  ReportTable table{
      absl::StrCat("Scores of fewer dimensions, heads of ", c.head_dim, ", window ", window_tokens),
      {"score_dim", "prefill", "decode", "memory", "F", "F (d + 1)", "states of a layer"}};
  std::set<int64_t> dims = {8, 16, 32, c.key_dim(), c.head_dim};
  for (const int64_t e : dims) {
    const TaylorHead head{c.head_dim, c.n_heads / c.n_kv_heads, e, window_tokens};
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {absl::StrCat(e, e == c.key_dim() ? " (the model's)" : "")};
    Append(row, Lengths(head));
    Append(row, {absl::StrCat(TaylorFeatures(e)), absl::StrCat(TaylorStateNumbers(head)),
                 StateText(head, c.n_kv_heads)});
  }
  return table;
}

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

int64_t TaylorFeatures(int64_t key_dim) { return 1 + key_dim + key_dim * (key_dim + 1) / 2; }

int64_t TaylorStateNumbers(const TaylorHead& head) {
  return TaylorFeatures(head.key_dim()) * (head.head_dim + 1);
}

// The direct form reads half of all pairs; the recurrent form reads the window, half of a chunk,
// and the state, into which every key is folded once.
double CausalPrefillCrossover(const TaylorHead& head) {
  return 2 * FarCrossover(head, ReadAndFold(head)) + kChunkTokens +
         static_cast<double>(head.window_tokens);
}

double CausalDecodeCrossover(const TaylorHead& head) {
  return FarCrossover(head, ReadAndFold(head)) + static_cast<double>(head.window_tokens);
}

double CausalMemoryCrossover(const TaylorHead& head) {
  constexpr double kStateBytes = 4, kCacheBytes = 2;
  return FarCrossover(head, kStateBytes / kCacheBytes) + static_cast<double>(head.window_tokens);
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
                               Ceil(CausalPrefillCrossover({d})), Ceil(CausalDecodeCrossover({d})),
                               Ceil(CausalMemoryCrossover({d}))));
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

std::string ModelTheoryText(const ModelConfig& config, int64_t window_tokens) {
  std::string text =
      "\nThis model's TaylorShift: lengths from which the recurrent form is the cheaper one\n";
  for (const ReportTable& table : {SplitTable(config), ScoreTable(config, window_tokens)}) {
    absl::StrAppend(&text, "\n", table.title, "\n", TableText(table, "  "));
  }
  absl::StrAppend(&text,
                  "  (N0, N1: the paper's, bidirectional; the others: causal, symmetric "
                  "features, an fp32 state,\n   a bf16 cache)\n");
  return text;
}

}  // namespace lowkey
