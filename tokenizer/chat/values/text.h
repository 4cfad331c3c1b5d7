#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
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
  // The memory behind the text, which is what copying costs: its bytes and its user ranges.
  size_t held_bytes() const { return size() + sizeof(ByteRange) * user_ranges_.size(); }
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

// Return the bytes that are left without white space, or the characters of `set`, at the ends.
enum class StripSide { kBoth, kLeft, kRight };
ByteRange StripSpace(std::string_view text, StripSide side);
ByteRange StripSet(std::string_view text, std::string_view set, StripSide side);

// Finds `needle` from byte `from` on; npos: nowhere. Linear, unlike string_view::find.
size_t Find(std::string_view text, std::string_view needle, size_t from);
// These call `visit` for what they find, from left to right, and stop at its first error. They hold
// nothing: a text of millions of lines costs what the visitor makes of it.
using VisitRange = absl::FunctionRef<absl::Status(ByteRange)>;
// Visits every `separator`; an empty one is found before every character and at the end.
absl::Status ForEachSeparator(std::string_view text, std::string_view separator, VisitRange visit);
// Visits every run of white space.
absl::Status ForEachSpace(std::string_view text, VisitRange visit);
// Visits every line, without its end.
absl::Status ForEachLine(std::string_view text, VisitRange visit);

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
