#include "tools/eval/choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

absl::StatusOr<Question> ParseQuestion(absl::string_view line, const std::string& place) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json json,
                      ParseJsonObject({line.data(), line.size()}, place));
  const JsonFields fields(json, place);
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> prompt, fields.String("prompt"));
  const nlohmann::json* choices = fields.Find("choices");
  const auto fault = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": ", what));
  };
  if (!prompt.has_value()) return fault("prompt: missing, expected a text");
  if (choices == nullptr || !choices->is_array() || choices->size() < 2 ||
      choices->size() > kMaxAnswers) {
    return fault(absl::StrCat("choices: expected an array of 2..", kMaxAnswers, " texts"));
  }
  Question question{*prompt, {}, 0};
  for (const nlohmann::json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      return fault(absl::StrCat("choices: ", ShortText(choice), ", expected a text"));
    }
    question.choices.push_back(choice.get<std::string>());
  }
  const auto last = static_cast<int64_t>(question.choices.size()) - 1;
  LK_ASSIGN_OR_RETURN(question.answer, fields.RequiredInt("answer", {0, last}));
  return question;
}

absl::StatusOr<TextToScore> MakeText(const Tokenizer& tokenizer, const Question& question,
                                     const std::string& choice,
                                     std::optional<int32_t> first_token) {
  EncodeOptions options;
  options.add_bos = false;
  options.add_eos = false;
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                      tokenizer.Encode(question.prompt, options));
  TextToScore text;
  LK_ASSIGN_OR_RETURN(text.tokens,
                      tokenizer.Encode(absl::StrCat(question.prompt, choice), options));
  const auto [same, unused] =
      std::mismatch(text.tokens.begin(), text.tokens.end(), prompt.begin(), prompt.end());
  // Nothing predicts the first token of a text.
  text.n_scored =
      std::min<int64_t>(text.tokens.end() - same, static_cast<int64_t>(text.tokens.size()) -
                                                      (first_token.has_value() ? 0 : 1));
  if (first_token.has_value()) text.tokens.insert(text.tokens.begin(), *first_token);
  if (text.n_scored > 0) return text;
  return absl::InvalidArgumentError(absl::StrCat("choice \"", choice, "\" adds no token"));
}

// Scores texts that begin alike: the first one, then the others, which find in the prefix cache
// what it left there. That changes no score.
absl::StatusOr<std::vector<ScoredText>> ScoreInTurn(Engine& engine, std::vector<TextToScore> texts,
                                                    const Reading& reading) {
  TextToScore first = texts[0];
  first.n_shared = static_cast<int64_t>(first.tokens.size());
  for (const TextToScore& text : texts) {
    first.n_shared =
        std::min(first.n_shared, static_cast<int64_t>(text.tokens.size()) - text.n_scored);
  }
  texts.erase(texts.begin());
  LK_ASSIGN_OR_RETURN(std::vector<ScoredText> scored,
                      ScoreTexts(engine, {std::move(first)}, 0, reading));
  LK_ASSIGN_OR_RETURN(std::vector<ScoredText> others,
                      ScoreTexts(engine, std::move(texts), 0, reading));
  std::move(others.begin(), others.end(), std::back_inserter(scored));
  return scored;
}

// The first of the largest values.
int64_t IndexOfMost(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

absl::Status Ask(Engine& engine, const Tokenizer& tokenizer, const Question& question,
                 std::optional<int32_t> first_token, const Reading& reading, ChoiceResult& result) {
  std::vector<TextToScore> texts;
  for (const std::string& choice : question.choices) {
    LK_ASSIGN_OR_RETURN(texts.emplace_back(), MakeText(tokenizer, question, choice, first_token));
  }
  LK_ASSIGN_OR_RETURN(const std::vector<ScoredText> scored,
                      ScoreInTurn(engine, std::move(texts), reading));
  std::vector<double> sums, means;
  for (size_t i = 0; i < scored.size(); ++i) {
    double sum = 0;
    for (const PromptLogprob& p : scored[i].logprobs) sum += p.token.logprob;
    sums.push_back(sum);
    means.push_back(sum / static_cast<double>(question.choices[i].size()));
    result.cost.Add(scored[i]);
  }
  ++result.n_questions;
  result.n_right += IndexOfMost(sums) == question.answer ? 1 : 0;
  result.n_right_normalized += IndexOfMost(means) == question.answer ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Question>> ParseQuestions(const std::string& text,
                                                     const std::string& source) {
  std::vector<Question> questions;
  int64_t line_number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::string place = absl::StrCat(source, ":", line_number);
    LK_ASSIGN_OR_RETURN(questions.emplace_back(), ParseQuestion(line, place));
  }
  if (!questions.empty()) return questions;
  return absl::InvalidArgumentError(absl::StrCat(source, ": no question"));
}

absl::StatusOr<ChoiceResult> MeasureChoices(
    Engine& engine, const Tokenizer& tokenizer, absl::Span<const Question> questions,
    std::optional<int32_t> first_token, const Reading& reading,
    absl::FunctionRef<void(int64_t done, int64_t all)> progress) {
  ChoiceResult result;
  const auto n_questions = static_cast<int64_t>(questions.size());
  for (const Question& question : questions) {
    progress(result.n_questions, n_questions);
    const absl::Status status = Ask(engine, tokenizer, question, first_token, reading, result);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat("question ", result.n_questions + 1, ": ", status.message()));
  }
  progress(n_questions, n_questions);
  return result;
}

}  // namespace lowkey
