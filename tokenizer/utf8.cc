#include "tokenizer/utf8.h"

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
