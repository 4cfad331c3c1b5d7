#ifndef LOWKEY_TOKENIZER_UTF8_H_
#define LOWKEY_TOKENIZER_UTF8_H_

#include <cstddef>
#include <optional>
#include <string>
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

// Returns whether the byte goes on with a character that another byte begins.
inline bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// These take valid UTF-8. They return the length of the character that begins at byte `at` and its
// code point, and the last character of a text that is not empty.
size_t CharacterBytes(std::string_view text, size_t at);
char32_t CodePointAt(std::string_view text, size_t at);
std::string_view LastCharacter(std::string_view text);

// Returns the number of characters: of the bytes that do not go on with one.
size_t CountCharacters(std::string_view text);

void AppendCodePoint(char32_t code_point, std::string& text);

// Unicode's White_Space.
bool IsWhiteSpace(char32_t code_point);

// Returns the offset of the first byte outside a valid character; nullopt if `text` is valid.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_UTF8_H_
