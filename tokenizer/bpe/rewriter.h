#ifndef LOWKEY_TOKENIZER_BPE_REWRITER_H_
#define LOWKEY_TOKENIZER_BPE_REWRITER_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "tokenizer/bpe/pattern.h"

namespace lowkey {

// A part of a text that is being encoded.
struct Section {
  std::string text;
  // One char per byte of `text`: 1 where a user wrote it, else 0. Empty if nobody needs to know.
  std::string literal;
  bool begins_text = false;

  // Returns whether a user wrote any of the bytes [begin, end).
  bool HasLiteral(size_t begin, size_t end) const {
    if (literal.empty()) return false;
    return std::string_view(literal).substr(begin, end - begin).find('\1') !=
           std::string_view::npos;
  }
};

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// One of the normalizers of a tokenizer.json.
struct Prepend {
  std::string content;
};
struct Replace {
  Pattern pattern;
  std::string content;
};
using RewriteStep = std::variant<Prepend, Replace, UnicodeForm>;

// Rewrites sections by some steps, in order. Immutable, safe to share between threads.
class Rewriter {
 public:
  // Bounds what the steps can make of a text.
  static constexpr size_t kMaxRewrittenBytes = size_t{16} << 20;

  explicit Rewriter(std::vector<RewriteStep> steps) : steps_(std::move(steps)) {}

  // `section.text` must be valid UTF-8; so is the result. An empty text stays empty.
  // `section.literal` is kept in step, but becomes empty with a UnicodeForm.
  // INVALID_ARGUMENT: the result is over kMaxRewrittenBytes, or the budget is spent.
  absl::Status Apply(Section& section, PatternBudget& budget) const;

  // INVALID_ARGUMENT: over kMaxRewrittenBytes.
  static absl::Status CheckSize(size_t n_bytes);

  bool HasUnicodeForm() const;

  // Returns a number by which no text's bytes are divided further; nullopt if there is none.
  std::optional<size_t> MaxShrink() const;

 private:
  const std::vector<RewriteStep> steps_;
};

// Returns the same for one step.
std::optional<size_t> MaxShrink(const Replace& replace);

// Puts `content` in the place of each match. The same errors.
absl::Status ReplaceMatches(const Replace& replace, Section& section, PatternBudget& budget);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_REWRITER_H_
