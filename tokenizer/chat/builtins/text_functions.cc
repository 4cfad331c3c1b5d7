#include "tokenizer/chat/builtins/text_functions.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/status_macros.h"

namespace lowkey::jinja {
namespace {

constexpr size_t kPartBytes = 64;

// Where `needle`, which is not empty, next begins. Linear, unlike string_view::find.
size_t Find(std::string_view text, std::string_view needle, size_t from) {
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

// The separators between white-space-separated words, or between any `separator`s: what is cut out.
std::vector<ByteRange> FindSeparators(std::string_view text, std::string_view separator) {
  std::vector<ByteRange> found;
  for (size_t at = 0; (at = Find(text, separator, at)) != std::string_view::npos;) {
    found.push_back({at, at + separator.size()});
    at += separator.size();
  }
  return found;
}

std::vector<ByteRange> FindSpaces(std::string_view text) {
  std::vector<ByteRange> found;
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = CharacterBytes(text, at);
    if (IsSpace(CodePointAt(text, at))) {
      if (!found.empty() && found.back().end == at) {
        found.back().end += n_bytes;
      } else {
        found.push_back({at, at + n_bytes});
      }
    }
    at += n_bytes;
  }
  return found;
}

std::vector<Text> CutOut(const Text& text, const std::vector<ByteRange>& cuts) {
  std::vector<Text> parts;
  size_t begin = 0;
  for (const ByteRange& cut : cuts) {
    parts.push_back(text.Part(begin, cut.begin));
    begin = cut.end;
  }
  parts.push_back(text.Part(begin, text.size()));
  return parts;
}

char32_t ToUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsLineEnd(char32_t code_point) {
  return (code_point >= 0x0A && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x1E) ||
         code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029;
}

}  // namespace

absl::StatusOr<Text> Replace(const Text& text, const Text& old_text, const Text& new_text,
                             std::optional<int64_t> count, Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  size_t n_left = count.has_value() && *count >= 0 ? static_cast<size_t>(*count)
                                                   : std::numeric_limits<size_t>::max();
  std::vector<ByteRange> cuts;
  if (old_text.size() > 0) {
    cuts = FindSeparators(text.bytes(), old_text.bytes());
  } else {
    // Before every character and at the end, as Python does.
    for (size_t at = 0; at < text.size(); at += CharacterBytes(text.bytes(), at)) {
      cuts.push_back({at, at});
    }
    cuts.push_back({text.size(), text.size()});
  }
  cuts.resize(std::min(cuts.size(), n_left));
  Text replaced;
  size_t begin = 0;
  for (const ByteRange& cut : cuts) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(new_text.size()));
    replaced.AppendPart(text, begin, cut.begin);
    replaced.Append(new_text);
    begin = cut.end;
  }
  replaced.AppendPart(text, begin, text.size());
  return replaced;
}

absl::StatusOr<std::vector<Text>> Split(const Text& text, const SplitOptions& options,
                                        Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  const bool is_by_space = options.separator == nullptr;
  if (!is_by_space && options.separator->size() == 0) {
    return absl::InvalidArgumentError("split: empty separator");
  }
  // White space at the ends separates nothing.
  const ByteRange kept =
      is_by_space ? StripSpace(text.bytes(), StripSide::kBoth) : ByteRange{0, text.size()};
  if (is_by_space && kept.begin == kept.end) return std::vector<Text>();
  const size_t n_max = options.max_splits.has_value() && *options.max_splits >= 0
                           ? static_cast<size_t>(*options.max_splits)
                           : std::numeric_limits<size_t>::max();
  // What no cut touches stays as it is, also white space at its far end.
  const Text body = n_max == std::numeric_limits<size_t>::max()
                        ? text.Part(kept.begin, kept.end)
                        : text.Part(options.is_from_right ? 0 : kept.begin,
                                    options.is_from_right ? kept.end : text.size());
  std::vector<ByteRange> cuts = is_by_space
                                    ? FindSpaces(body.bytes())
                                    : FindSeparators(body.bytes(), options.separator->bytes());
  if (cuts.size() > n_max) {
    const auto n = static_cast<std::ptrdiff_t>(n_max);
    cuts = options.is_from_right ? std::vector<ByteRange>(cuts.end() - n, cuts.end())
                                 : std::vector<ByteRange>(cuts.begin(), cuts.begin() + n);
  } else if (is_by_space) {
    const Text stripped = text.Part(kept.begin, kept.end);
    return CutOut(stripped, FindSpaces(stripped.bytes()));
  }
  LK_RETURN_IF_ERROR(arena.ChargeBytes(kPartBytes * cuts.size()));
  return CutOut(body, cuts);
}

std::vector<Text> SplitLines(const Text& text) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n_bytes = CharacterBytes(bytes, at);
    if (IsLineEnd(CodePointAt(bytes, at))) {
      lines.push_back(text.Part(begin, at));
      begin = at + n_bytes;
      if (bytes[at] == '\r' && begin < bytes.size() && bytes[begin] == '\n') ++begin;
      at = begin;
    } else {
      at += n_bytes;
    }
  }
  if (begin < bytes.size()) lines.push_back(text.Part(begin, bytes.size()));
  return lines;
}

Text WithCase(const Text& text, Case wanted) {
  Text changed;
  bool is_start = true;
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = CharacterBytes(text.bytes(), at);
    const char32_t character = CodePointAt(text.bytes(), at);
    const bool is_upper = wanted == Case::kUpper || (wanted != Case::kLower && is_start);
    std::string bytes;
    AppendCodePoint(is_upper ? ToUpper(character) : ToLower(character), bytes);
    const bool is_users = text.IsUsers(at);
    changed.Append(is_users ? Text::FromUser(std::move(bytes)) : Text(std::move(bytes)));
    if (wanted == Case::kCapitalized) is_start = false;
    if (wanted == Case::kTitle) is_start = !IsLetter(character);
    if (wanted == Case::kTitleWords) {
      is_start = IsSpace(character) ||
                 std::u32string_view(U"-({[<").find(character) != std::u32string_view::npos;
    }
    at += n_bytes;
  }
  return changed;
}

}  // namespace lowkey::jinja
