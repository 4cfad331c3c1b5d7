#include "tools/eval/recall.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"

namespace lowkey {
namespace {

constexpr const char* kNames[RecallOptions::kMaxCodes] = {
    "lighthouse", "library", "harbor",   "garden",   "tower",   "mill",    "bakery", "museum",
    "station",    "bridge",  "school",   "castle",   "orchard", "theater", "market", "chapel",
    "workshop",   "barn",    "hospital", "hotel",    "factory", "stable",  "cellar", "attic",
    "vineyard",   "quarry",  "airport",  "aquarium", "stadium", "prison",  "palace", "cottage"};
constexpr size_t kCodeDigits = 6;
constexpr char kAgain[] = "\n\nOnce more, from the beginning:\n\n";

struct Sentence {
  std::vector<int32_t> tokens;
  size_t code_begin = 0, code_end = 0;
};

absl::StatusOr<std::vector<int32_t>> EncodePart(const Tokenizer& tokenizer,
                                                const std::string& text) {
  EncodeOptions options;
  options.add_bos = false;
  options.add_eos = false;
  return tokenizer.Encode(text, options);
}

// A code's tokens are those that differ once all its digits do.
absl::StatusOr<Sentence> MakeSentence(const Tokenizer& tokenizer, const char* name,
                                      const std::string& code) {
  std::string other = code;
  for (char& digit : other) digit = static_cast<char>('0' + (digit - '0' + 5) % 10);
  const auto text = [&](const std::string& digits) {
    return absl::StrCat("\nThe code of the ", name, " is ", digits, ".\n");
  };
  Sentence sentence;
  LK_ASSIGN_OR_RETURN(sentence.tokens, EncodePart(tokenizer, text(code)));
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> changed, EncodePart(tokenizer, text(other)));
  const auto& tokens = sentence.tokens;
  const auto head = std::mismatch(tokens.begin(), tokens.end(), changed.begin(), changed.end());
  const auto tail = std::mismatch(tokens.rbegin(), std::make_reverse_iterator(head.first),
                                  changed.rbegin(), std::make_reverse_iterator(head.second));
  sentence.code_begin = static_cast<size_t>(head.first - tokens.begin());
  sentence.code_end = tokens.size() - static_cast<size_t>(tail.first - tokens.rbegin());
  if (sentence.code_begin < sentence.code_end) return sentence;
  return absl::FailedPreconditionError("tokenizer: digits all have the same token");
}

class Random {
 public:
  explicit Random(int64_t seed) : engine_(static_cast<uint32_t>(seed)) {}
  size_t Below(size_t n) { return engine_() % n; }

 private:
  std::mt19937 engine_;
};

absl::StatusOr<std::vector<Sentence>> MakeSentences(const Tokenizer& tokenizer, int32_t n_codes,
                                                    Random& random) {
  std::vector<Sentence> sentences;
  for (int32_t i = 0; i < n_codes; ++i) {
    std::string code;
    while (code.size() < kCodeDigits) code += static_cast<char>('0' + random.Below(10));
    LK_ASSIGN_OR_RETURN(sentences.emplace_back(), MakeSentence(tokenizer, kNames[i], code));
  }
  return sentences;
}

// A text in the making.
struct Parts {
  std::vector<Sentence> sentences;
  std::vector<int32_t> again;
  int64_t n_filler = 0;  // tokens of the ordinary text
};

absl::StatusOr<Parts> MakeParts(const Tokenizer& tokenizer, const RecallOptions& options,
                                Random& random) {
  constexpr int64_t kMaxContext = int64_t{1} << 24;
  LK_RETURN_IF_ERROR(CheckRange("codes", options.n_codes, 1, RecallOptions::kMaxCodes));
  LK_RETURN_IF_ERROR(
      CheckRange("passage", options.passage_tokens, RecallOptions::kCueTokens + 1, kMaxContext));
  LK_RETURN_IF_ERROR(CheckRange("context", options.context_tokens, 2, kMaxContext));
  Parts parts;
  LK_ASSIGN_OR_RETURN(parts.sentences, MakeSentences(tokenizer, options.n_codes, random));
  LK_ASSIGN_OR_RETURN(parts.again, EncodePart(tokenizer, kAgain));
  int64_t n_asked = options.passage_tokens + static_cast<int64_t>(parts.again.size());
  for (const Sentence& s : parts.sentences) n_asked += 2 * static_cast<int64_t>(s.tokens.size());
  if (options.first_token.has_value()) ++n_asked;
  parts.n_filler = options.context_tokens - n_asked;
  // The passage lies in the first quarter, so that it is far from where it is asked for.
  if (parts.n_filler >= 4 * options.passage_tokens) return parts;
  return absl::InvalidArgumentError(
      absl::StrCat("context: ", options.context_tokens, " tokens, expected at least ",
                   n_asked + 4 * options.passage_tokens, " for ", options.n_codes,
                   " codes and a passage of ", options.passage_tokens));
}

void Append(absl::Span<const int32_t> more, std::vector<int32_t>& tokens) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

// Appends the ordinary text with a sentence every `gap` tokens after the passage.
void Scatter(absl::Span<const int32_t> filler, const Parts& parts, int64_t passage_tokens,
             std::vector<int32_t>& tokens) {
  const auto n_sentences = static_cast<int64_t>(parts.sentences.size());
  const int64_t gap = (parts.n_filler * 3 / 4 - passage_tokens) / n_sentences;
  size_t done = 0;
  for (int64_t i = 0; i < n_sentences; ++i) {
    const auto place = static_cast<size_t>(passage_tokens + i * gap);
    Append(filler.subspan(done, place - done), tokens);
    Append(parts.sentences[i].tokens, tokens);
    done = place;
  }
  Append(filler.subspan(done), tokens);
}

void Ask(const Parts& parts, Random& random, RecallText& text) {
  std::vector<size_t> order(parts.sentences.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  for (const size_t i : order) {
    const Sentence& sentence = parts.sentences[i];
    std::vector<int64_t>& places = text.codes.emplace_back(sentence.code_end - sentence.code_begin);
    std::iota(places.begin(), places.end(),
              static_cast<int64_t>(text.tokens.size() + sentence.code_begin));
    Append(sentence.tokens, text.tokens);
  }
}

// The likeliest token of the prediction is the token itself.
bool IsRight(const PromptLogprob& p) { return p.top[0].token == p.token.token; }

void Count(const RecallText& text, const ScoredText& scored, RecallResult& result) {
  const auto at = [&](int64_t place) -> const PromptLogprob& {
    return scored.logprobs[place - scored.logprobs[0].position];
  };
  for (const std::vector<int64_t>& code : text.codes) {
    int64_t n_right = 0;
    for (const int64_t place : code) {
      n_right += IsRight(at(place)) ? 1 : 0;
      result.code_negative_logprob -= at(place).token.logprob;
    }
    ++result.n_codes;
    result.n_codes_right += n_right == static_cast<int64_t>(code.size()) ? 1 : 0;
    result.n_code_tokens += static_cast<int64_t>(code.size());
    result.n_code_tokens_right += n_right;
  }
  result.n_copied += static_cast<int64_t>(text.copied.size());
  for (const int64_t place : text.copied) result.n_copied_right += IsRight(at(place)) ? 1 : 0;
  ++result.n_texts;
  result.cost.Add(scored);
}

}  // namespace

absl::StatusOr<RecallText> MakeRecallText(const Tokenizer& tokenizer,
                                          absl::Span<const int32_t> filler,
                                          const RecallOptions& options, int64_t index) {
  Random random(index);
  LK_ASSIGN_OR_RETURN(const Parts parts, MakeParts(tokenizer, options, random));
  const int64_t begin = index * options.context_tokens;
  const int64_t n_needed = begin + parts.n_filler;
  if (static_cast<int64_t>(filler.size()) < n_needed) {
    return absl::InvalidArgumentError(absl::StrCat("text: ", filler.size(),
                                                   " tokens, expected at least ", n_needed, " for ",
                                                   index + 1, " texts"));
  }
  filler = filler.subspan(begin, parts.n_filler);
  RecallText text;
  if (options.first_token.has_value()) text.tokens.push_back(*options.first_token);
  Scatter(filler, parts, options.passage_tokens, text.tokens);
  Ask(parts, random, text);
  Append(parts.again, text.tokens);
  Append(filler.first(options.passage_tokens), text.tokens);
  text.copied.resize(options.passage_tokens - RecallOptions::kCueTokens);
  std::iota(text.copied.begin(), text.copied.end(),
            static_cast<int64_t>(text.tokens.size() - text.copied.size()));
  return text;
}

absl::StatusOr<RecallResult> MeasureRecall(
    Engine& engine, const Tokenizer& tokenizer, absl::Span<const int32_t> filler,
    const RecallOptions& options, absl::FunctionRef<void(int64_t done, int64_t all)> progress) {
  LK_RETURN_IF_ERROR(MakeRecallText(tokenizer, filler, options, 0).status());
  const int64_t n_fit = static_cast<int64_t>(filler.size()) / options.context_tokens;
  const int64_t n_texts = std::max<int64_t>(1, std::min(options.max_texts.value_or(n_fit), n_fit));
  RecallResult result;
  for (int64_t i = 0; i < n_texts; ++i) {
    progress(i, n_texts);
    LK_ASSIGN_OR_RETURN(const RecallText text, MakeRecallText(tokenizer, filler, options, i));
    const auto n_scored = static_cast<int64_t>(text.tokens.size()) - text.codes[0][0];
    LK_ASSIGN_OR_RETURN(const std::vector<ScoredText> scored,
                        ScoreTexts(engine, {{text.tokens, n_scored}}, 1, options.reading));
    Count(text, scored[0], result);
  }
  progress(n_texts, n_texts);
  return result;
}

}  // namespace lowkey
