#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace lowkey::jinja {

// A string of valid UTF-8 that remembers which of its bytes a user wrote. What is cut out of it or
// joined with it remembers too.
class Text {
 public:
  Text() = default;
  // Written by the template.
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  static Text FromUser(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  // Sorted, not empty, neither overlapping nor touching.
  const std::vector<ByteRange>& user_ranges() const { return user_ranges_; }
  bool has_user_bytes() const { return !user_ranges_.empty(); }

  void Append(std::string_view template_bytes) { bytes_ += template_bytes; }
  void Append(const Text& text) { AppendPart(text, 0, text.size()); }
  // Bytes [begin, end) of `text`, within its size. `text` must not be this one.
  void AppendPart(const Text& text, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;

  // Whether a user wrote the byte at `at`.
  bool IsUsers(size_t at) const;

 private:
  std::string bytes_;
  std::vector<ByteRange> user_ranges_;
};

// Code points, as Python sees strings.

// Of the character that begins at `at`, which must be below the size.
char32_t CodePointAt(std::string_view text, size_t at);
// Bytes of the character that begins at `at`.
size_t CharacterBytes(std::string_view text, size_t at);
// How many characters.
size_t CountCharacters(std::string_view text);
// What Python's str.isspace is true for.
bool IsSpace(char32_t code_point);
void AppendCodePoint(char32_t code_point, std::string& text);

// The bytes that are left when white space, or the characters of `set`, are taken off.
enum class StripSide { kBoth, kLeft, kRight };
ByteRange StripSpace(std::string_view text, StripSide side);
ByteRange StripSet(std::string_view text, std::string_view set, StripSide side);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_
