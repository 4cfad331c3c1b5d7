#include "tokenizer/chat/values/text.h"

#include <algorithm>

#include "absl/functional/function_ref.h"

namespace lowkey::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

ByteRange Strip(std::string_view text, StripSide side,
                absl::FunctionRef<bool(std::string_view)> is_stripped) {
  ByteRange kept{0, text.size()};
  while (side != StripSide::kRight && kept.begin < kept.end) {
    const size_t n_bytes = CharacterBytes(text, kept.begin);
    if (!is_stripped(text.substr(kept.begin, n_bytes))) break;
    kept.begin += n_bytes;
  }
  while (side != StripSide::kLeft && kept.begin < kept.end) {
    size_t last = kept.end - 1;
    while (last > kept.begin && IsContinuation(text[last])) --last;
    if (!is_stripped(text.substr(last, kept.end - last))) break;
    kept.end = last;
  }
  return kept;
}

}  // namespace

Text Text::FromUser(std::string bytes) {
  Text text(std::move(bytes));
  if (text.size() > 0) text.user_ranges_.push_back({0, text.size()});
  return text;
}

void Text::AppendPart(const Text& text, size_t begin, size_t end) {
  const size_t shift = bytes_.size();
  bytes_.append(text.bytes_, begin, end - begin);
  auto range =
      std::partition_point(text.user_ranges_.begin(), text.user_ranges_.end(),
                           [begin](const ByteRange& candidate) { return candidate.end <= begin; });
  for (; range != text.user_ranges_.end() && range->begin < end; ++range) {
    const ByteRange moved{std::max(range->begin, begin) - begin + shift,
                          std::min(range->end, end) - begin + shift};
    if (!user_ranges_.empty() && user_ranges_.back().end == moved.begin) {
      user_ranges_.back().end = moved.end;
    } else if (moved.begin < moved.end) {
      user_ranges_.push_back(moved);
    }
  }
}

Text Text::Part(size_t begin, size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  return part;
}

bool Text::IsUsers(size_t at) const {
  const auto range =
      std::partition_point(user_ranges_.begin(), user_ranges_.end(),
                           [at](const ByteRange& candidate) { return candidate.end <= at; });
  return range != user_ranges_.end() && range->begin <= at;
}

size_t CharacterBytes(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && IsContinuation(text[end])) ++end;
  return end - at;
}

char32_t CodePointAt(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return lead;
  const size_t n_bytes = CharacterBytes(text, at);
  char32_t code_point = lead & (0xFFU >> (n_bytes + 1));
  for (size_t i = 1; i < n_bytes; ++i) {
    code_point = code_point << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  return code_point;
}

size_t CountCharacters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

bool IsSpace(char32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x20) ||
         code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

void AppendCodePoint(char32_t code_point, std::string& text) {
  const auto tail = [code_point](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += {static_cast<char>(0xC0 | code_point >> 6), tail(0)};
  } else if (code_point < 0x10000) {
    text += {static_cast<char>(0xE0 | code_point >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)};
  }
}

ByteRange StripSpace(std::string_view text, StripSide side) {
  return Strip(text, side,
               [](std::string_view character) { return IsSpace(CodePointAt(character, 0)); });
}

ByteRange StripSet(std::string_view text, std::string_view set, StripSide side) {
  // A whole character of valid UTF-8 is found only where a character begins.
  return Strip(text, side, [set](std::string_view character) {
    return set.find(character) != std::string_view::npos;
  });
}

}  // namespace lowkey::jinja
