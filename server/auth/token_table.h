#ifndef LOWKEY_SERVER_AUTH_TOKEN_TABLE_H_
#define LOWKEY_SERVER_AUTH_TOKEN_TABLE_H_

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/enum_names.h"
#include "server/request/tenant.h"

namespace lowkey {

inline constexpr size_t kMaxTokenTableBytes = size_t{1} << 20;
inline constexpr size_t kMaxTenants = 1024;
inline constexpr size_t kMaxTokens = 4096;
// Shorter tokens could be guessed.
inline constexpr size_t kMinTokenBytes = 20;
inline constexpr size_t kMaxTokenBytes = 256;

// The rights of a token's bearer.
enum class Right {
  kGenerate,  // generate, score, tokenize
  kRead,      // models and statistics
  kAdmin,     // drain, and every method without a right of its own
};
inline constexpr size_t kRights = 3;

template <>
inline constexpr EnumNames kEnumNames<Right> = {"right", {"generate", "read", "admin"}};

struct TokenGrant {
  std::shared_ptr<const Tenant> tenant;
  std::bitset<kRights> rights;

  bool Allows(Right right) const { return rights[static_cast<size_t>(right)]; }
};

// The SHA-256 hashes of the tokens that a server accepts; the tokens themselves are not kept.
class TokenTable {
 public:
  // Parses the JSON that docs/security.md describes. The file's `name` begins every message.
  // INVALID_ARGUMENT: other JSON, an unknown field, a value outside its range, a tenant or token
  // twice, too many of them. No message quotes a token.
  static absl::StatusOr<TokenTable> Parse(std::string_view json, const std::string& name);

  // Returns null for an unknown token, and for a text that is not well formed as a token, whatever
  // the table holds. Takes the same time wherever a token is in the table, or if it is not.
  const TokenGrant* Find(std::string_view token) const;

  // Returns whether both tables come from the same text.
  bool operator==(const TokenTable& other) const { return text_hash_ == other.text_hash_; }

  size_t n_tokens() const { return entries_.size(); }

 private:
  using Hash = std::array<uint64_t, 4>;
  struct Entry {
    Hash sha256;
    TokenGrant grant;
  };
  class Parser;

  std::vector<Entry> entries_;
  Hash text_hash_ = {};
};

// Returns whether a token has 20 to 256 bytes of RFC 6750's alphabet: letters, digits and -._~+/,
// then =.
bool IsWellFormedToken(std::string_view token);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_TOKEN_TABLE_H_
