#ifndef LOWKEY_TOKENIZER_BPE_PATTERN_H_
#define LOWKEY_TOKENIZER_BPE_PATTERN_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/interrupt.h"

namespace lowkey {

// The work that patterns may still do on one text. A step is an alternative tried or a byte read.
struct PatternBudget {
  // Enough for any pattern whose work is linear in the text. The interrupt must outlive this.
  explicit PatternBudget(size_t text_bytes, Interrupt* asked = nullptr)
      : steps_left(64 * text_bytes + (size_t{1} << 20)),
        bytes_left(64 * text_bytes + (size_t{16} << 20)),
        interrupt(asked) {}

  // Pays for bytes that a text was rewritten to. INVALID_ARGUMENT: the budget is spent.
  absl::Status TakeBytes(size_t n_bytes);

  size_t steps_left;
  size_t bytes_left;           // of all rewritten texts together
  Interrupt* const interrupt;  // is asked while patterns are searched; null: nobody is asked
};

// A pattern that a tokenizer.json names: a string, or a regular expression as Oniguruma reads
// it, which is what Hugging Face's tokenizers use. Immutable, safe to share between threads.
class Pattern {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 10;
  static constexpr size_t kMaxStringBytes = 256;  // a search takes this times the text's bytes

  // INVALID_ARGUMENT: empty, over kMaxStringBytes, or not UTF-8.
  static absl::StatusOr<Pattern> FromString(std::string_view text);

  // INVALID_ARGUMENT: over kMaxBytes, not UTF-8, or no regular expression. UNIMPLEMENTED: a
  // construct that Oniguruma may read in another way than PCRE2, which is used here, or an
  // expression that can match nothing.
  static absl::StatusOr<Pattern> FromRegex(std::string_view regex);

  // Returns the bytes of a string's matches; nullopt for a regular expression.
  std::optional<size_t> match_bytes() const {
    return regex_ == nullptr ? std::optional<size_t>(text_.size()) : std::nullopt;
  }

 private:
  friend class PatternSearch;

  Pattern() = default;

  std::string text_;                   // the string, or the regular expression
  std::shared_ptr<const void> regex_;  // PCRE2's code; null for a string
};

// Searches texts for one pattern. Not thread-safe.
class PatternSearch {
 public:
  using Visit = absl::FunctionRef<void(size_t begin, size_t end)>;

  // Both must outlive this.
  PatternSearch(const Pattern& pattern, PatternBudget& budget);

  // Calls visit for each match in `text`, from left to right. `text` must be valid UTF-8.
  // INVALID_ARGUMENT: the budget is spent. Also the interrupt's error.
  absl::Status ForEachMatch(std::string_view text, Visit visit);

 private:
  absl::Status ForEachRegexMatch(std::string_view text, Visit visit);

  const Pattern& pattern_;
  PatternBudget& budget_;
  std::shared_ptr<void> match_, context_;  // PCRE2's
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_PATTERN_H_
