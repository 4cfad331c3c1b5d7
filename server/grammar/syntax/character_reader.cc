#include "server/grammar/syntax/character_reader.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/automaton/budget.h"

namespace lowkey::grammar {
namespace {

CharSet Digits() { return CharSet('0', '9'); }

CharSet WordChars() {
  return CharSet::FromRanges({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}

CharSet AsciiSpaces() { return CharSet::FromRanges({{'\t', '\r'}, {' ', ' '}}); }

// Every space of Unicode: what \S leaves out.
CharSet AllSpaces() {
  CharSet spaces = AsciiSpaces();
  spaces.Add(CharSet::FromRanges({{0x85, 0x85},
                                  {0xA0, 0xA0},
                                  {0x1680, 0x1680},
                                  {0x2000, 0x200A},
                                  {0x2028, 0x2029},
                                  {0x202F, 0x202F},
                                  {0x205F, 0x205F},
                                  {0x3000, 0x3000},
                                  {0xFEFF, 0xFEFF}}));
  return spaces;
}

std::optional<CharSet> NamedSet(char c) {
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Complement();
    case 'w':
      return WordChars();
    case 'W':
      return WordChars().Complement();
    case 's':
      return AsciiSpaces();
    case 'S':
      return AllSpaces().Complement();
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> ControlChar(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::Status CharacterReader::Error(std::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": byte ", position(), ": ", std::string(message)));
}

bool CharacterReader::Take(std::string_view text) {
  if (!Looks(text)) return false;
  Drop(text.size());
  return true;
}

absl::StatusOr<uint32_t> CharacterReader::ReadChar() {
  uint32_t c = 0;
  if (!TakeChar(rest_, c)) return Error("not UTF-8, expected a character");
  return c;
}

absl::StatusOr<uint32_t> CharacterReader::ReadHex(size_t n_digits) {
  uint32_t value = 0;
  const std::string_view digits = rest_.substr(0, n_digits);
  const bool is_hex = digits.size() == n_digits && n_digits > 0 && n_digits <= 6 &&
                      std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) &&
                      absl::SimpleHexAtoi(std::string(digits), &value);
  if (!is_hex || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return Error("expected the hexadecimal digits of a character, which is no surrogate");
  }
  Drop(n_digits);
  return value;
}

absl::StatusOr<CharSet> CharacterReader::ReadEscape() {
  if (at_end()) return Error("a backslash at the end, expected a character after it");
  const char c = peek();
  uint32_t code = 0;
  if (std::optional<CharSet> set = NamedSet(c); set.has_value()) {
    Drop(1);
    return *std::move(set);
  }
  if (const std::optional<uint32_t> control = ControlChar(c); control.has_value()) {
    Drop(1);
    code = *control;
  } else if (Take("x")) {
    LK_ASSIGN_OR_RETURN(code, ReadHex(2));
  } else if (Take("u{")) {
    const size_t end = rest_.find('}');
    LK_ASSIGN_OR_RETURN(code, ReadHex(end == std::string_view::npos ? 0 : end));
    Drop(1);
  } else if (Take("u")) {
    LK_ASSIGN_OR_RETURN(code, ReadHex(4));
  } else if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
    return Error(absl::StrCat("escape \\", std::string(1, c), " is not supported"));
  } else {
    LK_ASSIGN_OR_RETURN(code, ReadChar());
  }
  return CharSet(code, code);
}

// White space is the little that all readers know as such, and what is not white space is not what
// any of them does: in a negated class the other way round.
absl::StatusOr<CharSet> CharacterReader::ReadClassItem(bool is_negated) {
  if (is_negated && Take("\\s")) return AllSpaces();
  if (is_negated && Take("\\S")) return AsciiSpaces().Complement();
  if (Take("\\")) return ReadEscape();
  if (Looks("[:") || Looks("[.") || Looks("[=")) {
    return Error("a named class in brackets is not supported, expected characters");
  }
  LK_ASSIGN_OR_RETURN(const uint32_t c, ReadChar());
  return CharSet(c, c);
}

absl::StatusOr<CharSet> CharacterReader::ReadClass() {
  const auto single = [](const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
  };
  const bool is_negated = Take("^");
  std::vector<CharSet::Range> ranges;
  while (!Looks("]")) {
    if (at_end()) return Error("a class without end, expected ]");
    LK_ASSIGN_OR_RETURN(const CharSet item, ReadClassItem(is_negated));
    const bool is_range = Looks("-") && !Looks("-]") && single(item);
    if (!is_range) {
      ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
      continue;
    }
    Drop(1);
    if (at_end()) return Error("a class without end, expected ]");
    LK_ASSIGN_OR_RETURN(const CharSet last, ReadClassItem(is_negated));
    if (!single(last) || last.ranges()[0].first < item.ranges()[0].first) {
      return Error("a range that ends before it begins, expected its last character");
    }
    ranges.push_back({item.ranges()[0].first, last.ranges()[0].first});
  }
  Drop(1);
  const CharSet set = CharSet::FromRanges(ranges);
  CharSet result = is_negated ? set.Complement() : set;
  if (result.empty()) return Error("a class without any character");
  return result;
}

absl::StatusOr<std::optional<CharacterReader::Count>> CharacterReader::ReadCount() {
  if (Take("*")) return Count{0, -1};
  if (Take("+")) return Count{1, -1};
  if (Take("?")) return Count{0, 1};
  constexpr size_t kMaxCountBytes = 32;
  if (!Looks("{")) return std::nullopt;
  const size_t end = rest_.substr(0, kMaxCountBytes).find('}');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string inside(rest_.substr(1, end - 1));
  const size_t comma = inside.find(',');
  const std::string first(inside.substr(0, comma));
  const std::string second =
      comma == std::string_view::npos ? first : std::string(inside.substr(comma + 1));
  const auto is_number = [](const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  };
  if (!is_number(first) || (!second.empty() && !is_number(second))) return std::nullopt;
  Count count{0, -1};
  const bool fits = absl::SimpleAtoi(first, &count.min) &&
                    (second.empty() || absl::SimpleAtoi(second, &count.max));
  if (!fits || std::max(count.min, count.max) > kMaxRepeat) {
    return Error(absl::StrCat("count {", inside, "}, expected at most ", kMaxRepeat));
  }
  if (count.max >= 0 && count.max < count.min) {
    return Error(absl::StrCat("count {", inside, "}, expected the least first"));
  }
  Drop(end + 1);
  return count;
}

}  // namespace lowkey::grammar
