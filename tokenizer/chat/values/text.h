#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace lowkey::jinja {

// A string of valid UTF-8 that remembers which of its bytes a user wrote. Its parts and joins
// remember too.
class Text {
 public:
  Text() = default;
  // The template wrote `bytes`.
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  static Text FromUser(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  // Sorted, not empty, neither overlapping nor touching.
  const std::vector<ByteRange>& user_ranges() const { return user_ranges_; }
  bool has_user_bytes() const { return !user_ranges_.empty(); }

  void Append(std::string_view template_bytes) { bytes_ += template_bytes; }
  void Append(const Text& text) { AppendPart(text, 0, text.size()); }
  // Appends bytes [begin, end) of `text`, which must be another Text.
  void AppendPart(const Text& text, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;

  // Returns whether a user wrote the byte at `at`.
  bool IsUsers(size_t at) const;

 private:
  std::string bytes_;
  std::vector<ByteRange> user_ranges_;
};

// Returns Python's str.isspace.
bool IsSpace(char32_t code_point);

// Returns the number of characters.
size_t CountCharacters(std::string_view text);

// Return the bytes that are left without white space, or the characters of `set`, at the ends.
enum class StripSide { kBoth, kLeft, kRight };
ByteRange StripSpace(std::string_view text, StripSide side);
ByteRange StripSet(std::string_view text, std::string_view set, StripSide side);

// Finds `needle` from byte `from` on; npos: nowhere. Linear, unlike string_view::find.
size_t Find(std::string_view text, std::string_view needle, size_t from);
// Find every `separator`, which is not empty, and every run of white space.
std::vector<ByteRange> FindSeparators(std::string_view text, std::string_view separator);
std::vector<ByteRange> FindSpaces(std::string_view text);
// Returns the parts between `cuts`, which are sorted and do not overlap.
std::vector<Text> CutOut(const Text& text, const std::vector<ByteRange>& cuts);

// Cuts a text into its lines, without their ends.
std::vector<Text> SplitLines(const Text& text);

// Changes characters one for one: the few that become two in Python, such as U+00DF, stay.
enum class Case {
  kUpper,
  kLower,
  kCapitalized,  // the first character upper, the rest lower
  kTitle,        // str.title: a letter after anything else is upper
  kTitleWords,   // the filter: a letter after white space or one of -({[< is upper
};
Text WithCase(const Text& text, Case wanted);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_
