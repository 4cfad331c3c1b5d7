#ifndef LOWKEY_TOKENIZER_BYTE_PIECE_H_
#define LOWKEY_TOKENIZER_BYTE_PIECE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace lowkey {

// The byte that a piece of a vocabulary with byte fallback stands for: "<0x0A>" is 10; nullopt if
// it is not of that form.
std::optional<uint8_t> ParseBytePiece(std::string_view piece);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BYTE_PIECE_H_
