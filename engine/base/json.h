#ifndef LOWKEY_ENGINE_BASE_JSON_H_
#define LOWKEY_ENGINE_BASE_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/load_account.h"

namespace lowkey {

inline constexpr int kMaxJsonDepth = 64;

// Parses an untrusted JSON object, whose size the caller bounds. `name` (a file's) begins every
// message. INVALID_ARGUMENT: not JSON, not an object, nested deeper than max_depth (the object
// itself is 1), with a key twice in one object, or of more values than a LoadAccount pays for.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& name,
                                               int max_depth = kMaxJsonDepth);
// The same; charges the text and what is made of it, and returns the account's error too.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& name,
                                               LoadAccount& account, int max_depth = kMaxJsonDepth);

// The value as JSON text, cut to a length fit for a message.
std::string ShortText(const nlohmann::json& value);

// Describes a value that is not the expected one, for a message: "an array of 3", "an object", or
// the value as ShortText.
std::string Described(const nlohmann::json& value);

template <typename T>
struct Range {
  T min, max;
};

// Reads an object's fields by type. Every getter returns nullopt when the field is absent or null,
// and INVALID_ARGUMENT like `config.json: hidden_size: -1, expected 1..65536` when it is of another
// type or outside its range. The object must outlive this.
class JsonFields {
 public:
  // `name` begins every message: "config.json" or "config.json: rope_scaling".
  JsonFields(const nlohmann::json& object, std::string name)
      : object_(object), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  // True when the field is there, null included.
  bool Has(const char* key) const { return object_.contains(key); }
  // The value; null when the field is absent or null.
  const nlohmann::json* Find(const char* key) const;

  absl::StatusOr<std::optional<int64_t>> Int(const char* key, Range<int64_t> range) const;
  absl::StatusOr<std::optional<double>> Number(const char* key, Range<double> range) const;
  absl::StatusOr<std::optional<bool>> Bool(const char* key) const;
  absl::StatusOr<std::optional<std::string>> String(const char* key) const;
  absl::StatusOr<std::optional<JsonFields>> Object(const char* key) const;

  // Int and Number for a field that must be there: INVALID_ARGUMENT `... missing, expected 1..9`.
  absl::StatusOr<int64_t> RequiredInt(const char* key, Range<int64_t> range) const;
  absl::StatusOr<double> RequiredNumber(const char* key, Range<double> range) const;

  // `name: key: value, expected <expected>`.
  absl::Status Error(const char* key, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  const std::string name_;
};

// Any value of a document with its path, which begins every message: "tokenizer.json: model.vocab".
// It suits documents that nest deep; the document must outlive this.
class JsonValue {
 public:
  static constexpr size_t kMaxItems = size_t{1} << 20;

  JsonValue(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& get() const { return *value_; }
  const std::string& path() const { return path_; }

  // The value at `key`; nullopt when this is no object, or the value is absent or null.
  std::optional<JsonValue> Find(const std::string& key) const;
  // Find, for a value that must be there: INVALID_ARGUMENT otherwise.
  absl::StatusOr<JsonValue> Get(const std::string& key) const;

  // The members of an array. INVALID_ARGUMENT: not one, or over kMaxItems.
  absl::StatusOr<std::vector<JsonValue>> Items() const;

  // INVALID_ARGUMENT: the value has another type, or is no id from 0 to 2^31 - 1.
  absl::StatusOr<std::string> Text() const;
  absl::StatusOr<bool> Flag() const;
  absl::StatusOr<int32_t> Id() const;

  // Items, Text and Flag of the value at `key`, which FlagOr allows to be absent or null.
  absl::StatusOr<std::vector<JsonValue>> Items(const std::string& key) const;
  absl::StatusOr<std::string> Text(const std::string& key) const;
  absl::StatusOr<bool> Flag(const std::string& key) const;
  absl::StatusOr<bool> FlagOr(const std::string& key, bool missing) const;

  // `path: value, expected <expected>` and `path: value is not supported`.
  absl::Status Error(const std::string& expected) const;
  absl::Status Unsupported() const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_JSON_H_
