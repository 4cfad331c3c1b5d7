#ifndef LOWKEY_TOOLS_EVAL_RECALL_H_
#define LOWKEY_TOOLS_EVAL_RECALL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "tokenizer/tokenizer.h"
#include "tools/eval/scored_text.h"

namespace lowkey {

// A text that asks for what stood far above: sentences such as "The code of the lighthouse is
// 482913." are scattered over the first three quarters of an ordinary text and come again, in
// another order, at its end; then its first passage comes once more. What is scored is whether the
// model predicts the digits, and the passage after its first kCueTokens tokens, given all before.
struct RecallOptions {
  static constexpr int32_t kMaxCodes = 32;
  static constexpr int64_t kCueTokens = 32;

  int64_t context_tokens = 4096;            // with first_token and what is asked
  int32_t n_codes = 14;                     // 1..kMaxCodes in a text, of six digits each
  int64_t passage_tokens = 240;             // more than kCueTokens
  std::optional<int64_t> max_texts = {};    // >= 1; unset: all that the ordinary text is enough for
  std::optional<int32_t> first_token = {};  // stands at the head of every text (bos)
  Reading reading = {};
};

struct RecallText {
  std::vector<int32_t> tokens;
  std::vector<std::vector<int64_t>> codes;  // places of each code's tokens, in the order asked
  std::vector<int64_t> copied;              // places of the passage's scored tokens
};

// Makes text number `index` >= 0 from the ordinary text after its first index * context_tokens
// tokens. Each number has its own codes.
// INVALID_ARGUMENT if an option is out of its range, the context has no room for what is asked, or
// `filler`, the tokens of the ordinary text, is too short.
absl::StatusOr<RecallText> MakeRecallText(const Tokenizer& tokenizer,
                                          absl::Span<const int32_t> filler,
                                          const RecallOptions& options, int64_t index);

struct RecallResult {
  int64_t n_texts = 0;
  int64_t n_codes = 0, n_codes_right = 0;  // right: each of its tokens is the likeliest
  int64_t n_code_tokens = 0, n_code_tokens_right = 0;
  double code_negative_logprob = 0;  // over the codes' tokens, natural logarithm
  int64_t n_copied = 0, n_copied_right = 0;
  EvalCost cost = {};
};

// Scores the texts through the engine, one after another; progress(done, all) after each. Errors
// are those of MakeRecallText and ScoreTexts.
absl::StatusOr<RecallResult> MeasureRecall(
    Engine& engine, const Tokenizer& tokenizer, absl::Span<const int32_t> filler,
    const RecallOptions& options, absl::FunctionRef<void(int64_t done, int64_t all)> progress);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_RECALL_H_
