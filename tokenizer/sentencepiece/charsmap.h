#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_CHARSMAP_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

// SentencePiece's precompiled_charsmap: rules "replace this string with that one", stored as
//   uint32 trie_bytes | darts-clone double array of uint32 units | replacements, NUL after each
// all little-endian. Immutable after Create, so safe to share between threads.
class Charsmap {
 public:
  static constexpr size_t kMaxKeyBytes = 256;
  static constexpr size_t kMaxReplacementBytes = 256;

  struct Match {
    size_t n_bytes;                // the length of the text that the rule replaces, at least 1
    std::string_view replacement;  // valid UTF-8, may be empty; points into the Charsmap
  };

  // Walks every unit that some text can reach. INVALID_ARGUMENT: sizes that do not fit, a unit that
  // leads outside the array, a cycle or a key over kMaxKeyBytes, a rule whose replacement lies
  // outside the blob, is not NUL-terminated within kMaxReplacementBytes, or is not valid UTF-8.
  static absl::StatusOr<Charsmap> Create(std::string_view bytes);

  // Returns the rule with the longest key that begins `text` and ends where a character of it ends.
  // `text` must be valid UTF-8.
  std::optional<Match> LongestMatch(std::string_view text) const;

 private:
  Charsmap() = default;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_CHARSMAP_H_
