#ifndef LOWKEY_TOKENIZER_UTF8_H_
#define LOWKEY_TOKENIZER_UTF8_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace lowkey {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";      // U+2581, written for a space

enum class Utf8Kind {
  kValid,       // a whole character: no overlong form, no surrogate, at most U+10FFFF
  kInvalid,     // the first byte cannot begin a character, whatever follows
  kIncomplete,  // the text ends inside what may still become a character
};

struct Utf8Char {
  Utf8Kind kind;
  // kValid: of the character; kIncomplete: all of the text; kInvalid: at least 1, as many as some
  // character begins with
  size_t n_bytes;
};

// Examines the first character of `text`, which must not be empty.
Utf8Char ExamineUtf8(std::string_view text);

// Returns the length in bytes of the first character of `text`, valid UTF-8 and not empty.
size_t Utf8Length(std::string_view text);

// Returns the offset of the first byte outside a valid character; nullopt if `text` is valid.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_UTF8_H_
