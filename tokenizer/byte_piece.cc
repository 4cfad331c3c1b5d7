#include "tokenizer/byte_piece.h"

namespace lowkey {
namespace {

std::optional<uint8_t> ParseHexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

std::optional<uint8_t> ParseBytePiece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const std::optional<uint8_t> high = ParseHexDigit(piece[3]);
  const std::optional<uint8_t> low = ParseHexDigit(piece[4]);
  if (!high.has_value() || !low.has_value()) return std::nullopt;
  return static_cast<uint8_t>(*high * 16 + *low);
}

}  // namespace lowkey
