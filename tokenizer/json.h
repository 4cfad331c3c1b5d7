#ifndef LOWKEY_TOKENIZER_JSON_H_
#define LOWKEY_TOKENIZER_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

inline constexpr int kMaxJsonDepth = 64;

// Parses an untrusted JSON object; of equal keys, the last counts. `name` (a file's) begins every
// message. INVALID_ARGUMENT: not JSON, not an object, or nested deeper than kMaxJsonDepth.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& name);

// A value in a JSON document with its way from the root, which begins every message:
// "tokenizer.json: model.vocab". The document must outlive it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, std::string way) : value_(&value), way_(std::move(way)) {}

  const nlohmann::json& get() const { return *value_; }
  const std::string& way() const { return way_; }

  // The value at `key` of an object; nullopt if this is none, or the value is missing or null.
  std::optional<JsonValue> Find(const std::string& key) const;
  // INVALID_ARGUMENT: missing or null.
  absl::StatusOr<JsonValue> Get(const std::string& key) const;

  // The items of an array. INVALID_ARGUMENT: not one.
  absl::StatusOr<std::vector<JsonValue>> Items() const;

  // INVALID_ARGUMENT: of another type, or not an id from 0 to 2^31 - 1.
  absl::StatusOr<std::string> Text() const;
  absl::StatusOr<bool> Flag() const;
  absl::StatusOr<int32_t> Id() const;

  // The same of the value at `key`; the second form for a value that may be missing or null.
  absl::StatusOr<std::string> Text(const std::string& key) const;
  absl::StatusOr<bool> Flag(const std::string& key) const;
  absl::StatusOr<bool> FlagOr(const std::string& key, bool missing) const;

  // `way: value, expected <expected>` and `way: value is not supported`.
  absl::Status Error(const std::string& expected) const;
  absl::Status Unsupported() const;

 private:
  const nlohmann::json* value_;
  std::string way_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_JSON_H_
