#include "tokenizer/settings.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Json = nlohmann::json;

absl::Status KeyError(const std::string& file, const std::string& key, const Json& value,
                      const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": ", key, ": ", value.type_name(), ", expected ", expected));
}

// Returns nullopt when there is no such file.
absl::StatusOr<std::optional<Json>> LoadJsonObject(const std::string& directory,
                                                   const std::string& file) {
  absl::StatusOr<std::string> text =
      ReadWholeFile(absl::StrCat(directory, "/", file), kMaxSettingsFileBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  LK_RETURN_IF_ERROR(text.status());
  LK_ASSIGN_OR_RETURN(Json json, ParseJsonObject(*text, file));
  return json;
}

// Returns the value at `key` of an object; nullptr if it is missing or null.
const Json* Find(const Json& json, const std::string& key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}

// A token is written as a string or as an object with its string in `content`.
absl::Status ReadToken(const std::string& file, const Json& json, const std::string& key,
                       std::optional<std::string>& out) {
  const Json* value = Find(json, key);
  if (value == nullptr || out.has_value()) return absl::OkStatus();
  const Json* content = value->is_object() ? Find(*value, "content") : value;
  if (content == nullptr || !content->is_string()) {
    return KeyError(file, key, *value, "a string, or an object with a string in content");
  }
  out = *content->get_ptr<const std::string*>();
  return absl::OkStatus();
}

absl::Status ReadFlag(const std::string& file, const Json& json, const std::string& key,
                      std::optional<bool>& out) {
  const Json* value = Find(json, key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return KeyError(file, key, *value, "true or false");
  out = *value->get_ptr<const bool*>();
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadId(const std::string& file, const std::string& key, const Json& value) {
  if (!value.is_number_integer()) return KeyError(file, key, value, "a token id");
  // Converting is safe for any integer; one over 2^63 comes out negative.
  const int64_t id = value.get<int64_t>();
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", key, ": ", value.dump(), ", expected a token id from 0"));
  }
  return static_cast<int32_t>(id);
}

absl::Status ReadTokens(const std::string& file, const Json& json, TokenizerSettings& settings) {
  LK_RETURN_IF_ERROR(ReadToken(file, json, "bos_token", settings.bos_token));
  return ReadToken(file, json, "eos_token", settings.eos_token);
}

absl::Status ReadConfig(const std::string& file, const Json& json, TokenizerSettings& settings) {
  LK_RETURN_IF_ERROR(ReadFlag(file, json, "add_bos_token", settings.add_bos_token));
  LK_RETURN_IF_ERROR(ReadFlag(file, json, "add_eos_token", settings.add_eos_token));
  return ReadTokens(file, json, settings);
}

absl::Status ReadEosIds(const std::string& file, const Json& value, TokenizerSettings& settings) {
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kMaxEosIds) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": eos_token_id: ", list.size(), " ids, expected at most ", kMaxEosIds));
  }
  for (const Json& item : list) {
    LK_ASSIGN_OR_RETURN(settings.eos_ids.emplace_back(), ReadId(file, "eos_token_id", item));
  }
  settings.eos_ids_file = file;
  return absl::OkStatus();
}

absl::Status ReadIds(const std::string& file, const Json& json, TokenizerSettings& settings) {
  const Json* bos = Find(json, "bos_token_id");
  if (bos != nullptr && !settings.bos_id.has_value()) {
    LK_ASSIGN_OR_RETURN(settings.bos_id, ReadId(file, "bos_token_id", *bos));
    settings.bos_id_file = file;
  }
  const Json* eos = Find(json, "eos_token_id");
  if (eos == nullptr || !settings.eos_ids.empty()) return absl::OkStatus();
  return ReadEosIds(file, *eos, settings);
}

// The files, of which an earlier one wins, and their readers.
struct SettingsFile {
  const char* name;
  absl::Status (*read)(const std::string& file, const Json& json, TokenizerSettings& settings);
};
constexpr SettingsFile kFiles[] = {{"tokenizer_config.json", ReadConfig},
                                   {"special_tokens_map.json", ReadTokens},
                                   {"generation_config.json", ReadIds},
                                   {"config.json", ReadIds}};

}  // namespace

absl::StatusOr<TokenizerSettings> LoadTokenizerSettings(const std::string& directory) {
  TokenizerSettings settings;
  for (const auto& [file, read] : kFiles) {
    LK_ASSIGN_OR_RETURN(const std::optional<Json> json, LoadJsonObject(directory, file));
    if (json.has_value()) LK_RETURN_IF_ERROR(read(file, *json, settings));
  }
  return settings;
}

}  // namespace lowkey
