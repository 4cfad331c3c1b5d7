#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_CHAIN_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_CHAIN_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace lowkey {

using PieceKey = std::array<uint8_t, 32>;

// Names the pieces of a prefix, one after the other: a piece's key is the SHA-256 of the key before
// it and of its own tokens. The first one's is that of a space, which says what else the bytes
// follow from. So equal keys mean equal tokens from the beginning on, whoever chose them.
class PieceChain {
 public:
  explicit PieceChain(std::string_view space);

  const PieceKey& key() const { return key_; }  // the last one's, or the space's
  // Returns the key of the next piece.
  const PieceKey& Append(absl::Span<const int32_t> tokens);

 private:
  PieceKey key_;
};

// Returns the key in 64 hexadecimal digits.
std::string HexOf(const PieceKey& key);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_CHAIN_H_
