#include "engine/runtime/prefix_files/piece_chain.h"

#include <openssl/sha.h>

#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"

namespace lowkey {

PieceChain::PieceChain(std::string_view space) {
  SHA256(reinterpret_cast<const unsigned char*>(space.data()), space.size(), key_.data());
}

const PieceKey& PieceChain::Append(absl::Span<const int32_t> tokens) {
  const size_t n_bytes = tokens.size() * sizeof(int32_t);
  std::vector<uint8_t> text(key_.size() + n_bytes);
  std::memcpy(text.data(), key_.data(), key_.size());
  std::memcpy(text.data() + key_.size(), tokens.data(), n_bytes);
  SHA256(text.data(), text.size(), key_.data());
  return key_;
}

std::string HexOf(const PieceKey& key) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()});
}

}  // namespace lowkey
