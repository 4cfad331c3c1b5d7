#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "tokenizer/interrupt.h"
#include "tokenizer/pieces.h"
#include "tokenizer/sentencepiece/charsmap.h"

namespace lowkey {

// Rewrites text as a SentencePiece model wants it before segmentation: the charsmap's rules, extra
// spaces, the dummy prefix, spaces as U+2581. Immutable, safe to share between threads.
class Normalizer {
 public:
  // Bounds what a charsmap's rules can make of a text.
  static constexpr size_t kMaxNormalizedBytes = size_t{16} << 20;

  struct Options {
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;  // leading, trailing and repeated spaces
  };

  // `verbatim` holds the strings that no rule rewrites (user-defined pieces); it must outlive this.
  Normalizer(Options options, std::optional<Charsmap> charsmap, const PieceTrie& verbatim)
      : options_(options), charsmap_(std::move(charsmap)), verbatim_(verbatim) {}

  // `text` must be valid UTF-8; so is the result. Empty, also without the dummy prefix, if nothing
  // but spaces to remove is left. INVALID_ARGUMENT: the result is over kMaxNormalizedBytes. Also
  // the interrupt's error; null: nobody is asked.
  absl::StatusOr<std::string> Normalize(std::string_view text,
                                        Interrupt* interrupt = nullptr) const;

  // INVALID_ARGUMENT: over kMaxNormalizedBytes.
  static absl::Status CheckSize(size_t n_bytes);

  // Returns whether no text becomes shorter.
  bool KeepsBytes() const { return !charsmap_.has_value() && !options_.remove_extra_whitespaces; }

 private:
  struct Unit {
    std::string_view replacement;
    size_t n_bytes;  // the length of the text that it replaces
  };

  // Returns what replaces the text's first characters.
  Unit NormalizePrefix(std::string_view text) const;
  size_t LeadingSpaceBytes(std::string_view text) const;

  const Options options_;
  const std::optional<Charsmap> charsmap_;
  const PieceTrie& verbatim_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_NORMALIZER_H_
