#include "tokenizer/settings.h"

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// A token is written as a string or as an object with its string in `content`.
absl::Status ReadToken(const JsonValue& file, const char* key, std::optional<std::string>& out) {
  const std::optional<JsonValue> value = file.Find(key);
  if (!value.has_value() || out.has_value()) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(out, value->Find("content").value_or(*value).Text());
  return absl::OkStatus();
}

absl::Status ReadFlag(const JsonValue& file, const char* key, std::optional<bool>& out) {
  const std::optional<JsonValue> value = file.Find(key);
  if (!value.has_value()) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(out, value->Flag());
  return absl::OkStatus();
}

absl::Status ReadTokens(const JsonValue& file, TokenizerSettings& settings) {
  LK_RETURN_IF_ERROR(ReadToken(file, "bos_token", settings.bos_token));
  return ReadToken(file, "eos_token", settings.eos_token);
}

absl::Status ReadConfig(const JsonValue& file, TokenizerSettings& settings) {
  LK_RETURN_IF_ERROR(ReadFlag(file, "add_bos_token", settings.add_bos_token));
  LK_RETURN_IF_ERROR(ReadFlag(file, "add_eos_token", settings.add_eos_token));
  return ReadTokens(file, settings);
}

absl::Status ReadEosIds(const JsonValue& value, TokenizerSettings& settings) {
  std::vector<JsonValue> ids = {value};
  if (value.get().is_array()) {
    LK_ASSIGN_OR_RETURN(ids, value.Items());
  }
  if (ids.size() > kMaxEosIds) return value.Error(absl::StrCat("at most ", kMaxEosIds, " ids"));
  for (const JsonValue& id : ids) {
    LK_ASSIGN_OR_RETURN(settings.eos_ids.emplace_back(), id.Id());
  }
  return absl::OkStatus();
}

absl::Status ReadIds(const JsonValue& file, TokenizerSettings& settings) {
  const std::optional<JsonValue> bos = file.Find("bos_token_id"), eos = file.Find("eos_token_id");
  if (bos.has_value() && !settings.bos_id.has_value()) {
    LK_ASSIGN_OR_RETURN(settings.bos_id, bos->Id());
  }
  if (!eos.has_value() || !settings.eos_ids.empty()) return absl::OkStatus();
  return ReadEosIds(*eos, settings);
}

// The files, of which an earlier one wins, and their readers.
struct SettingsFile {
  const char* name;
  absl::Status (*read)(const JsonValue& file, TokenizerSettings& settings);
};
constexpr SettingsFile kFiles[] = {{"tokenizer_config.json", ReadConfig},
                                   {"special_tokens_map.json", ReadTokens},
                                   {"generation_config.json", ReadIds},
                                   {"config.json", ReadIds}};

}  // namespace

absl::StatusOr<TokenizerSettings> LoadTokenizerSettings(const std::string& directory) {
  TokenizerSettings settings;
  for (const auto& [file, read] : kFiles) {
    const absl::StatusOr<std::string> text =
        ReadWholeFile(absl::StrCat(directory, "/", file), kMaxSettingsFileBytes);
    if (absl::IsNotFound(text.status())) continue;
    LK_RETURN_IF_ERROR(text.status());
    LK_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(*text, file));
    LK_RETURN_IF_ERROR(read(JsonValue(json, absl::StrCat(file, ": ")), settings));
    if (settings.bos_id.has_value() && settings.bos_id_file.empty()) settings.bos_id_file = file;
    if (!settings.eos_ids.empty() && settings.eos_ids_file.empty()) settings.eos_ids_file = file;
  }
  return settings;
}

}  // namespace lowkey
