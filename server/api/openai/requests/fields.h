#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_FIELDS_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/openai/options.h"

namespace lowkey {

// Parses a body. INVALID_ARGUMENT: not a JSON object in UTF-8, nested over 64 levels, with a key
// twice in one object, or of more values than 32 MiB hold; nothing larger is built.
absl::StatusOr<nlohmann::json> ParseBody(const std::string& body);

// Reads an object's fields and remembers which were asked for. Null means absent. Errors are
// INVALID_ARGUMENT like `temperature: "hot", expected a number`. The object must outlive this.
class Fields {
 public:
  // `prefix` begins the fields' names: "stream_options.", or empty.
  explicit Fields(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The value; null if it is absent.
  const nlohmann::json* Take(const char* key);

  // Set `to` if the field is there.
  absl::Status Read(const char* key, bool& to);
  absl::Status Read(const char* key, std::optional<bool>& to);
  absl::Status Read(const char* key, std::optional<int32_t>& to);
  absl::Status Read(const char* key, std::optional<float>& to);
  absl::Status Read(const char* key, std::optional<std::string>& to);
  // An array of integers of 32 bits.
  absl::Status Read(const char* key, std::vector<int32_t>& to);

  // Reads a field that has no effect: whatever its value is.
  void Ignore(const char* key) { Take(key); }
  // UNIMPLEMENTED if the field has another value than this one, which has no effect.
  absl::Status Accept(const char* key, const nlohmann::json& value);
  // UNIMPLEMENTED if the field is there. `reason` may be empty.
  absl::Status Refuse(const char* key, std::string_view reason = "");

  // Refuse a field that was not asked for with INVALID_ARGUMENT and code unknown_parameter.
  // CheckAll does so whatever the server's policy is.
  absl::Status CheckRest(UnknownFields policy) const;
  absl::Status CheckAll() const { return FindUnknown(""); }

  std::string NameOf(std::string_view key) const { return prefix_ + std::string(key); }
  absl::Status Error(std::string_view key, std::string_view expected) const;

 private:
  absl::Status FindUnknown(std::string_view remedy) const;

  const nlohmann::json& object_;
  const std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

// `name: value, expected <expected>`.
absl::Status ValueError(std::string_view name, const nlohmann::json& value,
                        std::string_view expected);
// Returns the integer that a decimal such as 1.0 is, as some languages write all numbers; nullopt
// for another value, and beyond 2^53.
std::optional<int64_t> WholeNumber(const nlohmann::json& value);
absl::StatusOr<int32_t> ReadInt32(const std::string& name, const nlohmann::json& value);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_FIELDS_H_
