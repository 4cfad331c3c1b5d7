#include "server/auth/token_table.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr Range<double> kWeights = {0.001, 1000};
constexpr Range<int64_t> kLiveRequests = {1, 1'000'000};
constexpr Range<int64_t> kTokensPerMinute = {1, 1'000'000'000'000};
constexpr size_t kMaxNameBytes = 64;
constexpr int kMaxDepth = 6;

// Checks that a value is an object with known keys alone.
absl::Status CheckKeys(const JsonFields& fields, const json& object,
                       std::initializer_list<const char*> known) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(fields.name(), ": expected an object"));
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(fields.name(), ": unknown field ",
                                                   ShortText(key), ", expected ",
                                                   absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<const json*> NonEmptyArray(const JsonFields& fields, const char* key,
                                          size_t max_size) {
  const json* array = fields.Find(key);
  if (array == nullptr || !array->is_array() || array->empty() || array->size() > max_size) {
    // fields.Error would quote text that may hold a token.
    return absl::InvalidArgumentError(
        absl::StrCat(fields.name(), ": ", key, ": expected a list of 1..", max_size));
  }
  return array;
}

bool IsName(const std::string& name) {
  const auto is_plain = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), is_plain);
}

absl::StatusOr<std::bitset<kRights>> ParseRights(const JsonFields& fields) {
  std::bitset<kRights> rights;
  if (!fields.Has("rights")) return 0b011;  // generate and read
  LK_ASSIGN_OR_RETURN(const json* names, NonEmptyArray(fields, "rights", kRights));
  for (const json& name : *names) {
    const auto right = ParseName<Right>(name.is_string() ? name.get_ref<const std::string&>() : "");
    if (!right.ok() || rights[static_cast<size_t>(*right)]) {
      return fields.Error("rights", "some of \"generate\", \"read\", \"admin\", each once");
    }
    rights.set(static_cast<size_t>(*right));
  }
  return rights;
}

std::array<uint64_t, 4> Sha256(std::string_view text) {
  std::array<uint64_t, 4> hash;
  static_assert(sizeof(hash) == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

}  // namespace

bool IsWellFormedToken(std::string_view token) {
  const size_t n_bytes = token.size();
  while (!token.empty() && token.back() == '=') token.remove_suffix(1);
  constexpr std::string_view kSigns = "-._~+/";
  return n_bytes >= kMinTokenBytes && n_bytes <= kMaxTokenBytes && !token.empty() &&
         std::all_of(token.begin(), token.end(), [kSigns](unsigned char c) {
           return absl::ascii_isalnum(c) || kSigns.find(static_cast<char>(c)) != kSigns.npos;
         });
}

class TokenTable::Parser {
 public:
  explicit Parser(std::string name) : name_(std::move(name)) {}

  absl::StatusOr<TokenTable> Parse(const json& root) {
    const JsonFields fields(root, name_);
    LK_RETURN_IF_ERROR(CheckKeys(fields, root, {"tenants"}));
    LK_ASSIGN_OR_RETURN(const json* tenants, NonEmptyArray(fields, "tenants", kMaxTenants));
    for (size_t i = 0; i < tenants->size(); ++i) {
      LK_RETURN_IF_ERROR(AddTenant((*tenants)[i], absl::StrCat(name_, ": tenants[", i, "]")));
    }
    return std::move(table_);
  }

 private:
  absl::Status AddTenant(const json& object, const std::string& where) {
    const JsonFields fields(object, where);
    LK_RETURN_IF_ERROR(CheckKeys(
        fields, object, {"name", "weight", "max_live_requests", "tokens_per_minute", "tokens"}));
    auto tenant = std::make_shared<Tenant>();
    LK_ASSIGN_OR_RETURN(const std::optional<std::string> name, fields.String("name"));
    if (!IsName(name.value_or("")) || !tenants_.insert(*name).second) {
      return fields.Error("name", absl::StrCat("1..", kMaxNameBytes,
                                               " of a-z A-Z 0-9 - _ . that no other tenant has"));
    }
    tenant->name = *name;
    LK_ASSIGN_OR_RETURN(const std::optional<double> weight, fields.Number("weight", kWeights));
    tenant->weight = weight.value_or(1);
    LK_ASSIGN_OR_RETURN(tenant->max_live_requests, fields.Int("max_live_requests", kLiveRequests));
    LK_ASSIGN_OR_RETURN(tenant->tokens_per_minute,
                        fields.Int("tokens_per_minute", kTokensPerMinute));
    LK_ASSIGN_OR_RETURN(const json* tokens, NonEmptyArray(fields, "tokens", kMaxTokens));
    for (size_t i = 0; i < tokens->size(); ++i) {
      LK_RETURN_IF_ERROR(AddToken((*tokens)[i], absl::StrCat(where, ": tokens[", i, "]"), tenant));
    }
    return absl::OkStatus();
  }

  absl::Status AddToken(const json& object, const std::string& where,
                        std::shared_ptr<const Tenant> tenant) {
    const JsonFields fields(object, where);
    LK_RETURN_IF_ERROR(CheckKeys(fields, object, {"sha256", "token", "rights"}));
    if (table_.entries_.size() == kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": one too many, expected at most ", kMaxTokens, " tokens"));
    }
    LK_ASSIGN_OR_RETURN(const Hash hash, ParseHash(object, where));
    if (!hashes_.insert(hash).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": is in the file already"));
    }
    LK_ASSIGN_OR_RETURN(const std::bitset<kRights> rights, ParseRights(fields));
    table_.entries_.push_back({hash, {std::move(tenant), rights}});
    return absl::OkStatus();
  }

  // The fields are read by hand, because no message may quote them.
  static absl::StatusOr<Hash> ParseHash(const json& object, const std::string& where) {
    const auto sha256 = object.find("sha256"), token = object.find("token");
    if ((sha256 == object.end()) == (token == object.end())) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected one of sha256 and token"));
    }
    if (token != object.end()) {
      const auto* text = token->get_ptr<const std::string*>();
      if (text != nullptr && IsWellFormedToken(*text)) return Sha256(*text);
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": token: expected ", kMinTokenBytes, "..", kMaxTokenBytes,
                       " letters, digits or -._~+/, such as `openssl rand -hex 32` writes"));
    }
    const auto* text = sha256->get_ptr<const std::string*>();
    const auto is_hex = [](unsigned char c) { return absl::ascii_isxdigit(c); };
    if (text == nullptr || text->size() != 64 || !std::all_of(text->begin(), text->end(), is_hex)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": sha256: expected 64 hexadecimal digits"));
    }
    Hash hash;
    auto* bytes = reinterpret_cast<unsigned char*>(hash.data());
    for (size_t i = 0; i < sizeof(hash); ++i) {
      std::from_chars(&(*text)[2 * i], &(*text)[2 * i] + 2, bytes[i], 16);
    }
    return hash;
  }

  const std::string name_;
  TokenTable table_;
  std::set<std::string> tenants_;
  std::set<Hash> hashes_;
};

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text, const std::string& name) {
  if (text.size() > kMaxTokenTableBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", text.size(), " bytes, expected at most ", kMaxTokenTableBytes));
  }
  LK_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, name, kMaxDepth));
  LK_ASSIGN_OR_RETURN(TokenTable table, Parser(name).Parse(root));
  table.text_hash_ = Sha256(text);
  return table;
}

const TokenGrant* TokenTable::Find(std::string_view token) const {
  // The file may hold the hash of a text that could be guessed, such as one out of an example.
  if (!IsWellFormedToken(token)) return nullptr;
  const Hash hash = Sha256(token);
  size_t found = entries_.size();
  // Without a branch or an early end the time tells nothing of the table.
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Hash& other = entries_[i].sha256;
    const uint64_t difference =
        (hash[0] ^ other[0]) | (hash[1] ^ other[1]) | (hash[2] ^ other[2]) | (hash[3] ^ other[3]);
    // All bits are ones for the equal hash.
    const size_t mask = ((difference | (uint64_t{0} - difference)) >> 63) - 1;
    found = (i & mask) | (found & ~mask);
  }
  return found < entries_.size() ? &entries_[found].grant : nullptr;
}

}  // namespace lowkey
