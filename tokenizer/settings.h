#ifndef LOWKEY_TOKENIZER_SETTINGS_H_
#define LOWKEY_TOKENIZER_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

// The special tokens that the JSON files beside tokenizer.model name. Unset: the files do not say.
struct TokenizerSettings {
  // Pieces: tokenizer_config.json first, then special_tokens_map.json.
  std::optional<std::string> bos_token = std::nullopt;
  std::optional<std::string> eos_token = std::nullopt;

  // tokenizer_config.json
  std::optional<bool> add_bos_token = std::nullopt;
  std::optional<bool> add_eos_token = std::nullopt;

  // One file's ids: generation_config.json first, then config.json.
  std::optional<int32_t> bos_id = std::nullopt;
  std::vector<int32_t> eos_ids = {};
  std::string bos_id_file = {};  // where they come from, for error messages
  std::string eos_ids_file = {};
};

inline constexpr size_t kMaxSettingsFileBytes = size_t{16} << 20;
inline constexpr size_t kMaxEosIds = 64;

// Reads the optional files in `directory`. A missing file says nothing. INVALID_ARGUMENT, naming
// file and key: not a JSON object, or a value of the wrong type.
absl::StatusOr<TokenizerSettings> LoadTokenizerSettings(const std::string& directory);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SETTINGS_H_
