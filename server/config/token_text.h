#ifndef LOWKEY_SERVER_CONFIG_TOKEN_TEXT_H_
#define LOWKEY_SERVER_CONFIG_TOKEN_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

inline constexpr size_t kMaxTokenFileBytes = size_t{64} << 20;

// Token ids separated by white space or commas. INVALID_ARGUMENT, beginning with `source` and
// naming the word and its line: not an integer, outside [0, vocab_size), or no id at all.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text, const std::string& source,
                                                   int32_t vocab_size);

// A whole file; "-" is standard input. NOT_FOUND when it cannot be read, INVALID_ARGUMENT when it
// is longer than max_bytes.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

// UNAVAILABLE when the file cannot be written whole.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

// ParseTokenIds of a file of at most kMaxTokenFileBytes.
absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path, int32_t vocab_size);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_TOKEN_TEXT_H_
