#ifndef LOWKEY_TOKENIZER_BPE_PRE_TOKENIZER_H_
#define LOWKEY_TOKENIZER_BPE_PRE_TOKENIZER_H_

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/bpe/pattern.h"
#include "tokenizer/bpe/rewriter.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// GPT-2's words, which byte-level tokenizers cut by unless told otherwise.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'d|'ll| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The steps of the pre-tokenizers of a tokenizer.json.

// Cuts words where a pattern matches, and before and behind.
struct Cut {
  enum class Behavior {
    kIsolated,            // a match is a word
    kRemoved,             // a match is dropped
    kMergedWithPrevious,  // a match ends the word before it
    kMergedWithNext,      // a match begins the word after it
    kContiguous,          // neighboring matches are one word
  };
  Pattern pattern;
  Behavior behavior = Behavior::kIsolated;
  bool inverts = false;  // text that does not match counts as matching
};

// Puts `content` before words that do not begin with it.
struct PrependOnce {
  enum class Where { kEachWord, kTextsBeginning };
  std::string content;
  Where where = Where::kEachWord;
};

// Spells words by bytes, as byte-level vocabularies do.
struct Spell {};

// Emplace steps in vectors: GCC 14 suspects a temporary step of being uninitialized.
using PreTokenizerStep = std::variant<Cut, PrependOnce, Replace, Spell>;

// The words of a section, in order.
struct Words {
  std::string text;
  std::vector<ByteRange> ranges;  // of `text`; never empty ones
};

// Cuts sections into the words within which pieces merge. Immutable, safe to share between threads.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // `section.text` must be valid UTF-8; so is every word. INVALID_ARGUMENT: over
  // Rewriter::kMaxRewrittenBytes with what the steps add, or the budget is spent.
  absl::StatusOr<Words> Run(Section section, PatternBudget& budget) const;

  // Returns a number by which no text's bytes are divided further; nullopt if there is none.
  std::optional<size_t> MaxShrink() const;

  // Returns whether words are spelled by bytes in the end.
  bool Spells() const { return !steps_.empty() && std::holds_alternative<Spell>(steps_.back()); }

 private:
  const std::vector<PreTokenizerStep> steps_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_PRE_TOKENIZER_H_
