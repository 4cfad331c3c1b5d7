#ifndef LOWKEY_SERVER_GRAMMAR_AUTOMATON_CHAR_SET_H_
#define LOWKEY_SERVER_GRAMMAR_AUTOMATON_CHAR_SET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lowkey::grammar {

// A set of Unicode characters: code points up to U+10FFFF without the surrogates.
class CharSet {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // both ends belong to it

  CharSet() = default;
  CharSet(uint32_t first, uint32_t last) { Add(first, last); }

  static CharSet All();
  static CharSet Of(std::string_view ascii);
  // Takes ranges in any order. Surrogates are left out.
  static CharSet FromRanges(const std::vector<Range>& ranges);

  // Adds first..last without the surrogates among them. last <= U+10FFFF.
  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);

  CharSet Complement() const;
  CharSet Intersection(const CharSet& other) const;
  bool empty() const { return ranges_.empty(); }
  // Sorted, neither overlapping nor adjacent.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  void Append(uint32_t first, uint32_t last);
  void Normalize();

  std::vector<Range> ranges_;
};

// A run of bytes at one position of a character's UTF-8 form; both ends belong to it.
struct ByteRange8 {
  uint8_t first = 0, last = 0;
};

// Calls `take` for sequences of byte ranges that together spell exactly the characters of `chars`
// in UTF-8.
void ForEachUtf8(const CharSet& chars,
                 absl::FunctionRef<void(const std::vector<ByteRange8>&)> take);

// Takes the character that `text` begins with and drops it from there. Returns false, with nothing
// dropped, unless `text` begins with a whole character in UTF-8.
bool TakeChar(std::string_view& text, uint32_t& code_point);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_AUTOMATON_CHAR_SET_H_
