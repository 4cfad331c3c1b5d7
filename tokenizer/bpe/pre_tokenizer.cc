#include "tokenizer/bpe/pre_tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/byte_level.h"

namespace lowkey {
namespace {

// A stretch of a word: a match of a pattern, or the text between two.
struct Stretch {
  ByteRange range;
  bool is_match = false;
};

using Ranges = std::vector<ByteRange>;

void Append(ByteRange range, Ranges& ranges) {
  if (range.begin < range.end) ranges.push_back(range);
}

// Returns whether a stretch goes on with the word of the stretch before it.
bool JoinsPrevious(Cut::Behavior behavior, const Stretch& previous, const Stretch& stretch) {
  switch (behavior) {
    case Cut::Behavior::kMergedWithPrevious:
      return stretch.is_match && !previous.is_match;
    case Cut::Behavior::kMergedWithNext:
      return previous.is_match && !stretch.is_match;
    case Cut::Behavior::kContiguous:
      return previous.is_match == stretch.is_match;
    default:
      return false;
  }
}

// Appends the words that `stretches` of one word become.
void AppendWords(const std::vector<Stretch>& stretches, Cut::Behavior behavior, Ranges& ranges) {
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (behavior == Cut::Behavior::kRemoved && stretches[i].is_match) continue;
    if (i > 0 && JoinsPrevious(behavior, stretches[i - 1], stretches[i])) {
      ranges.back().end = stretches[i].range.end;
    } else {
      ranges.push_back(stretches[i].range);
    }
  }
}

absl::Status Apply(const Cut& cut, PatternBudget& budget, Words& words) {
  Ranges ranges;
  ranges.reserve(words.ranges.size());
  PatternSearch search(cut.pattern, budget);
  std::vector<Stretch> stretches;
  for (const ByteRange& word : words.ranges) {
    const std::string_view text(words.text.data() + word.begin, word.end - word.begin);
    stretches.clear();
    size_t end = 0;
    const auto add = [&](size_t until, bool is_match) {
      if (until == end) return;
      stretches.push_back({{word.begin + end, word.begin + until}, is_match != cut.inverts});
      end = until;
    };
    LK_RETURN_IF_ERROR(search.ForEachMatch(text, [&](size_t match_begin, size_t match_end) {
      add(match_begin, false);
      add(match_end, true);
    }));
    add(text.size(), false);
    AppendWords(stretches, cut.behavior, ranges);
  }
  words.ranges = std::move(ranges);
  return absl::OkStatus();
}

// Replaces each word by what rewrite(word, is_first) gives. INVALID_ARGUMENT: the text is too long.
template <typename Rewrite>
absl::Status RewriteWords(Rewrite rewrite, PatternBudget& budget, Words& words) {
  Words rewritten;
  rewritten.text.reserve(words.text.size() + words.text.size() / 4);
  rewritten.ranges.reserve(words.ranges.size());
  for (size_t i = 0; i < words.ranges.size(); ++i) {
    const ByteRange word = words.ranges[i];
    const std::string_view text(words.text.data() + word.begin, word.end - word.begin);
    const size_t begin = rewritten.text.size();
    LK_RETURN_IF_ERROR(rewrite(text, i == 0, rewritten.text));
    if (rewritten.text.size() > Rewriter::kMaxRewrittenBytes) {
      return absl::InvalidArgumentError(absl::StrCat("text: over ", Rewriter::kMaxRewrittenBytes,
                                                     " bytes once it is cut into words"));
    }
    Append({begin, rewritten.text.size()}, rewritten.ranges);
  }
  words = std::move(rewritten);
  return budget.TakeBytes(words.text.size());
}

absl::Status Apply(const PrependOnce& prepend, bool begins_text, PatternBudget& budget,
                   Words& words) {
  return RewriteWords(
      [&](std::string_view word, bool is_first, std::string& out) {
        const bool is_there =
            prepend.where == PrependOnce::Where::kEachWord || (is_first && begins_text);
        if (is_there && !word.starts_with(prepend.content)) out.append(prepend.content);
        out.append(word);
        return absl::OkStatus();
      },
      budget, words);
}

absl::Status Apply(const Replace& replace, PatternBudget& budget, Words& words) {
  return RewriteWords(
      [&](std::string_view word, bool, std::string& out) {
        Section section = {.text = std::string(word), .literal = {}};
        LK_RETURN_IF_ERROR(ReplaceMatches(replace, section, budget));
        out.append(section.text);
        return absl::OkStatus();
      },
      budget, words);
}

absl::Status ApplySpell(PatternBudget& budget, Words& words) {
  return RewriteWords(
      [](std::string_view word, bool, std::string& out) {
        AppendSpelled(word, out);
        return absl::OkStatus();
      },
      budget, words);
}

}  // namespace

absl::StatusOr<Words> PreTokenizer::Run(Section section, PatternBudget& budget) const {
  Words words = {.text = std::move(section.text), .ranges = {}};
  Append({0, words.text.size()}, words.ranges);
  // A step can drop the word that begins the text, and the next is then not the first.
  bool begins_text = section.begins_text;
  for (const PreTokenizerStep& step : steps_) {
    if (const auto* const cut = std::get_if<Cut>(&step)) {
      LK_RETURN_IF_ERROR(Apply(*cut, budget, words));
      begins_text = begins_text && !words.ranges.empty() && words.ranges[0].begin == 0;
    } else if (const auto* const prepend = std::get_if<PrependOnce>(&step)) {
      LK_RETURN_IF_ERROR(Apply(*prepend, begins_text, budget, words));
    } else if (const auto* const replace = std::get_if<Replace>(&step)) {
      LK_RETURN_IF_ERROR(Apply(*replace, budget, words));
    } else {
      LK_RETURN_IF_ERROR(ApplySpell(budget, words));
    }
  }
  return words;
}

std::optional<size_t> PreTokenizer::MaxShrink() const {
  size_t product = 1;
  for (const PreTokenizerStep& step : steps_) {
    const auto* const cut = std::get_if<Cut>(&step);
    if (cut != nullptr && cut->behavior == Cut::Behavior::kRemoved) return std::nullopt;
    const auto* const replace = std::get_if<Replace>(&step);
    if (replace == nullptr) continue;
    const std::optional<size_t> factor = lowkey::MaxShrink(*replace);
    if (!factor.has_value()) return std::nullopt;
    product *= *factor;
  }
  return product;
}

}  // namespace lowkey
