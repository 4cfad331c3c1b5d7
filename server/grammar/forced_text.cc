#include "server/grammar/forced_text.h"

#include <optional>
#include <string>

#include "tokenizer/utf8.h"

namespace lowkey::grammar {
namespace {

// Stands for a text that is not known: few tokenizers join it with what follows.
constexpr std::string_view kUnknownBefore = "\n";

// Returns the text without the character that its end cuts off, if any.
std::string_view WholeCharacters(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && IsContinuation(text[begin - 1])) --begin;
  if (begin == 0) return text;
  const std::string_view last = text.substr(begin - 1);
  return ExamineUtf8(last).kind == Utf8Kind::kIncomplete ? text.substr(0, begin - 1) : text;
}

// Appends the longest tokens that spell the text, as far as there are such.
void AppendLongest(const Vocabulary& vocabulary, std::string_view text, size_t most,
                   std::vector<int32_t>& tokens) {
  while (!text.empty() && tokens.size() < most) {
    const std::optional<int32_t> token = vocabulary.LongestBeginning(text);
    if (!token.has_value()) return;
    tokens.push_back(*token);
    text.remove_prefix(vocabulary.text(*token).size());
  }
}

}  // namespace

std::optional<std::string_view> GuessSpace(std::string_view text, uint8_t next) {
  if (text.empty()) return "";
  const char last = text.back();
  for (size_t end = text.size(); end-- > 1;) {
    if (static_cast<uint8_t>(text[end]) != next) continue;
    const size_t before = text.find_last_not_of(kSpaces, end - 1);
    if (before != std::string_view::npos && text[before] == last) {
      return text.substr(before + 1, end - before - 1);
    }
  }
  if (last == '{' || last == '[') return std::nullopt;
  return last == ',' || last == ':' ? " " : "";
}

std::vector<int32_t> SpellForced(const Tokenizer& tokenizer, const Vocabulary& vocabulary,
                                 std::string_view before, std::string_view forced, size_t most) {
  while (!before.empty() && IsContinuation(before.front())) before.remove_prefix(1);
  forced = WholeCharacters(forced);
  std::vector<int32_t> tokens;
  if (forced.empty()) return tokens;
  std::string text(before.empty() ? kUnknownBefore : before);
  text.append(forced);
  EncodeOptions options;
  options.add_bos = options.add_eos = false;
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(text, options);
  if (!ids.ok()) return tokens;
  std::string spelled;
  std::vector<size_t> ends;
  for (const int32_t id : *ids) {
    spelled.append(tokenizer.BytesOf(id).value_or(std::string_view()));
    ends.push_back(spelled.size());
  }
  // A tokenizer may put a space before the text, but must not change the rest.
  if (!spelled.ends_with(text)) return tokens;
  const size_t border = spelled.size() - forced.size();
  size_t begin = 0;
  for (size_t i = 0; i < ids->size() && tokens.size() < most; begin = ends[i++]) {
    if (ends[i] <= border) continue;
    if (begin < border) {
      AppendLongest(vocabulary, forced.substr(0, ends[i] - border), most, tokens);
      continue;
    }
    if ((*ids)[i] >= vocabulary.vocab_size()) break;
    tokens.push_back((*ids)[i]);
  }
  return tokens;
}

}  // namespace lowkey::grammar
