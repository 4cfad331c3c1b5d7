#ifndef LOWKEY_TOOLS_EVAL_CHOICE_H_
#define LOWKEY_TOOLS_EVAL_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "tokenizer/tokenizer.h"
#include "tools/eval/scored_text.h"

namespace lowkey {

// A question whose answer is one of several continuations of a text.
struct Question {
  std::string prompt;
  std::vector<std::string> choices;  // 2..kMaxAnswers, none of them empty
  int64_t answer = 0;                // index of the right one
};

inline constexpr size_t kMaxAnswers = 64;

// Reads a question from each line that is not empty:
//   {"prompt": "The sky is", "choices": [" blue", " square"], "answer": 0}
// Other members are ignored. INVALID_ARGUMENT begins with `source` and the number of the line.
absl::StatusOr<std::vector<Question>> ParseQuestions(const std::string& text,
                                                     const std::string& source);

struct ChoiceResult {
  int64_t n_questions = 0;
  int64_t n_right = 0;             // the most probable continuation is the right one
  int64_t n_right_normalized = 0;  // the same by log-probability per byte of the continuation
  EvalCost cost = {};
};

// Scores each choice after its prompt. A choice's tokens are those of prompt and choice together,
// from the first one that the prompt alone does not have. `first_token` stands at the head of every
// text (bos). progress(done, all) after each question. INVALID_ARGUMENT, naming the question, for
// one whose choice adds no token; else the errors of Encode and ScoreTexts.
absl::StatusOr<ChoiceResult> MeasureChoices(
    Engine& engine, const Tokenizer& tokenizer, absl::Span<const Question> questions,
    std::optional<int32_t> first_token, const Reading& reading,
    absl::FunctionRef<void(int64_t done, int64_t all)> progress);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_CHOICE_H_
