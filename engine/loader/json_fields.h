#ifndef LOWKEY_ENGINE_LOADER_JSON_FIELDS_H_
#define LOWKEY_ENGINE_LOADER_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace lowkey {

// Parses an untrusted JSON object. `name` (a file's) begins every message.
// INVALID_ARGUMENT: not JSON, not an object, nested deeper than max_depth (the object itself is 1),
// or with a key twice in one object.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& name,
                                               int max_depth);

template <typename T>
struct Range {
  T min, max;
};

// Typed reading of an object's fields. Every getter returns nullopt when the field is absent or
// null, and INVALID_ARGUMENT like `config.json: hidden_size: -1, expected 1..65536` when it is of
// another type or outside its range. The object must outlive this.
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

  // Int, for a field that must be there: INVALID_ARGUMENT `... missing, expected 1..65536`.
  absl::StatusOr<int64_t> RequiredInt(const char* key, Range<int64_t> range) const;
  absl::StatusOr<double> RequiredNumber(const char* key, Range<double> range) const;

  // `name: key: value, expected <expected>`.
  absl::Status Error(const char* key, const std::string& expected) const;

 private:
  const nlohmann::json& object_;
  const std::string name_;
};

// The value as JSON text, cut to a length fit for a message.
std::string ShortText(const nlohmann::json& value);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_JSON_FIELDS_H_
