#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>

namespace lowkey {
namespace {

// Well-formed byte sequences by lead byte (Unicode 15, table 3-7): only the second byte's range
// depends on the lead byte; the later ones are 80..BF.
struct Lead {
  size_t n_bytes;
  uint8_t second_min;
  uint8_t second_max;
};

std::optional<Lead> ExamineLead(uint8_t byte) {
  if (byte < 0x80) return Lead{1, 0, 0};
  if (byte < 0xC2) return std::nullopt;
  if (byte < 0xE0) return Lead{2, 0x80, 0xBF};
  if (byte == 0xE0) return Lead{3, 0xA0, 0xBF};
  if (byte == 0xED) return Lead{3, 0x80, 0x9F};
  if (byte < 0xF0) return Lead{3, 0x80, 0xBF};
  if (byte == 0xF0) return Lead{4, 0x90, 0xBF};
  if (byte < 0xF4) return Lead{4, 0x80, 0xBF};
  if (byte == 0xF4) return Lead{4, 0x80, 0x8F};
  return std::nullopt;
}

}  // namespace

Utf8Char ExamineUtf8(std::string_view text) {
  const std::optional<Lead> lead = ExamineLead(static_cast<uint8_t>(text[0]));
  if (!lead.has_value()) return {Utf8Kind::kInvalid, 1};
  for (size_t i = 1; i < lead->n_bytes; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, text.size()};
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead->second_min : 0x80;
    const uint8_t max = i == 1 ? lead->second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kValid, lead->n_bytes};
}

size_t Utf8Length(std::string_view text) {
  const uint8_t byte = static_cast<uint8_t>(text[0]);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
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

size_t CountCharacters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

std::string_view LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while (IsContinuation(text[begin])) --begin;
  return text.substr(begin);
}

bool IsWhiteSpace(char32_t code_point) {
  return (code_point >= '\t' && code_point <= '\r') || code_point == ' ' || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Char c = ExamineUtf8(text.substr(offset));
    if (c.kind != Utf8Kind::kValid) return offset;
    offset += c.n_bytes;
  }
  return std::nullopt;
}

}  // namespace lowkey
