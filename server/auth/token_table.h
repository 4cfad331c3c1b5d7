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
#include "server/auth/tenant.h"

namespace lowkey {

inline constexpr size_t kMaxTokenTableBytes = size_t{1} << 20;
inline constexpr size_t kMaxTenants = 1024;
inline constexpr size_t kMaxTokens = 4096;
// Shorter ones could be guessed.
inline constexpr size_t kMinTokenBytes = 20;
inline constexpr size_t kMaxTokenBytes = 256;

// What a token lets its bearer do.
enum class Right {
  kGenerate,  // generate, score, tokenize
  kRead,      // what is served, and how it fares
  kAdmin,     // drain, and whatever has no right of its own
};
inline constexpr size_t kRights = 3;

// "generate", "read", "admin".
std::string_view RightName(Right right);

struct TokenGrant {
  std::shared_ptr<const Tenant> tenant;
  std::bitset<kRights> rights;

  bool Allows(Right right) const { return rights[static_cast<size_t>(right)]; }
};

// The tokens that a server accepts, as SHA-256 hashes: of a token itself nothing is kept.
class TokenTable {
 public:
  // From JSON, which docs/security.md describes. `name` (the file's) begins every message.
  // INVALID_ARGUMENT: not that JSON, an unknown field, a value outside its range, a tenant or token
  // twice, too many of them. No message quotes a token.
  static absl::StatusOr<TokenTable> Parse(std::string_view json, const std::string& name);

  // Null when the token is none of them. Takes the same time wherever it is in the table, or not.
  const TokenGrant* Find(std::string_view token) const;

  // Whether both come from the same text.
  bool operator==(const TokenTable& other) const { return text_hash_ == other.text_hash_; }

  size_t n_tokens() const { return entries_.size(); }
  size_t n_tenants() const { return n_tenants_; }

 private:
  using Hash = std::array<uint64_t, 4>;
  struct Entry {
    Hash sha256;
    TokenGrant grant;
  };
  class Parser;

  std::vector<Entry> entries_;
  size_t n_tenants_ = 0;
  Hash text_hash_ = {};
};

// 20 to 256 bytes of what RFC 6750 lets a bearer token have: letters, digits and -._~+/, then =.
bool IsWellFormedToken(std::string_view token);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_TOKEN_TABLE_H_
