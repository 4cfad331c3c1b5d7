#include "server/api/openai/requests/fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/load_account.h"
#include "engine/base/status_macros.h"
#include "server/api/http/api_error.h"

namespace lowkey {
namespace {

using nlohmann::json;

// A body's text and what is made of it, at about 50 bytes a value.
constexpr size_t kMaxBodyMemory = size_t{32} << 20;
constexpr size_t kMaxNameBytes = 128;

}  // namespace

absl::StatusOr<json> ParseBody(const std::string& body) {
  // The parser skips it, and those who look for a part of the text do not.
  if (absl::StartsWith(body, "\xEF\xBB\xBF")) {
    return absl::InvalidArgumentError("body: begins with a byte order mark, expected JSON");
  }
  LoadAccount account(kMaxBodyMemory);
  absl::StatusOr<json> parsed = ParseJsonObject(body, "body", account);
  if (!parsed.ok() && absl::StrContains(parsed.status().message(), "of memory to read")) {
    return absl::InvalidArgumentError(
        absl::StrCat("body: more values than ", kMaxBodyMemory, " bytes of memory hold"));
  }
  return parsed;
}

absl::Status ValueError(std::string_view name, const json& value, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(name.substr(0, kMaxNameBytes)), ": ",
                                                 Described(value), ", expected ",
                                                 std::string(expected)));
}

std::optional<int64_t> WholeNumber(const json& value) {
  constexpr double kMost = int64_t{1} << 53;
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) <= kMost) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::StatusOr<int32_t> ReadInt32(const std::string& name, const json& value) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= uint64_t{kMax}
                        : value.is_number_integer() && value.get<int64_t>() >= kMin;
  if (fits) return value.get<int32_t>();
  if (const auto number = WholeNumber(value);
      number.has_value() && *number >= kMin && *number <= kMax) {
    return static_cast<int32_t>(*number);
  }
  return ValueError(name, value, "an integer of 32 bits");
}

const json* Fields::Take(const char* key) {
  known_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status Fields::Error(std::string_view key, std::string_view expected) const {
  const auto it = object_.find(std::string(key));
  if (it != object_.end()) return ValueError(NameOf(key), *it, expected);
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(key), ": missing, expected ", std::string(expected)));
}

absl::Status Fields::Read(const char* key, bool& to) {
  std::optional<bool> value;
  LK_RETURN_IF_ERROR(Read(key, value));
  to = value.value_or(to);
  return absl::OkStatus();
}

absl::Status Fields::Read(const char* key, std::optional<bool>& to) {
  const json* value = Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return Error(key, "true or false");
  to = value->get<bool>();
  return absl::OkStatus();
}

absl::Status Fields::Read(const char* key, std::optional<int32_t>& to) {
  const json* value = Take(key);
  if (value == nullptr) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(to, ReadInt32(NameOf(key), *value));
  return absl::OkStatus();
}

absl::Status Fields::Read(const char* key, std::optional<float>& to) {
  const json* value = Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number()) return Error(key, "a number");
  to = value->get<float>();
  return absl::OkStatus();
}

absl::Status Fields::Read(const char* key, std::optional<std::string>& to) {
  const json* value = Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return Error(key, "a text");
  to = value->get<std::string>();
  return absl::OkStatus();
}

absl::Status Fields::Read(const char* key, std::vector<int32_t>& to) {
  const json* value = Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return Error(key, "an array of integers");
  to.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) {
    LK_ASSIGN_OR_RETURN(to.emplace_back(),
                        ReadInt32(absl::StrCat(NameOf(key), "[", i, "]"), (*value)[i]));
  }
  return absl::OkStatus();
}

absl::Status Fields::Accept(const char* key, const json& value) {
  const json* found = Take(key);
  if (found == nullptr || *found == value) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(NameOf(key), ": ", Described(*found),
                                               " is not supported, expected ", ShortText(value),
                                               " or no such field"));
}

absl::Status Fields::Refuse(const char* key, std::string_view reason) {
  if (Take(key) == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(NameOf(key), ": not supported",
                                               reason.empty() ? "" : ": ", std::string(reason)));
}

absl::Status Fields::CheckRest(UnknownFields policy) const {
  if (policy == UnknownFields::kIgnored) return absl::OkStatus();
  return FindUnknown(" (serve --unknown-fields ignore)");
}

absl::Status Fields::FindUnknown(std::string_view remedy) const {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || known_.count(key) > 0) continue;
    return WithErrorCode(absl::InvalidArgumentError(absl::StrCat(
                             NameOf(key.substr(0, kMaxNameBytes)),
                             ": unknown field; the server refuses fields that it does not know, as "
                             "they would be lost silently",
                             std::string(remedy))),
                         "unknown_parameter");
  }
  return absl::OkStatus();
}

}  // namespace lowkey
