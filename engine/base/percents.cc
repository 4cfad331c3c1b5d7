#include "engine/base/percents.h"

namespace lowkey {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::optional<char> PercentCharacter(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  const int high = HexDigit(text[1]), low = HexDigit(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string WithoutPercents(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::optional<char> character = PercentCharacter(text);
    plain += character.value_or(text[0]);
    text.remove_prefix(character.has_value() ? 3 : 1);
  }
  return plain;
}

}  // namespace lowkey
