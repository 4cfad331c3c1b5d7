#ifndef LOWKEY_SERVER_CONFIG_USER_FILES_H_
#define LOWKEY_SERVER_CONFIG_USER_FILES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

class FlagValues;

inline constexpr size_t kMaxTokenFileBytes = size_t{64} << 20;

// Reads token ids separated by white space or commas. INVALID_ARGUMENT begins with `source`
// and names the word and its line: no integer, outside [0, vocab_size), or no id at all.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text, const std::string& source,
                                                   int32_t vocab_size);

// Writes a file. FileError's errors when it cannot be written whole.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

// Checks, before long work, that the files that these flags name can be written; one that is not
// there is made empty. FileError's errors if not.
absl::Status CheckWritable(const FlagValues& flags, std::initializer_list<const char*> names);

// Checks, before long work, that a file that is written beside `path` can take its place: nothing
// or a regular file is there, and its folder takes files. FAILED_PRECONDITION or FileError's errors
// if not.
absl::Status CheckReplaceable(const std::string& path);

// Reads the token ids of a file of at most kMaxTokenFileBytes, as ParseTokenIds does.
absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path, int32_t vocab_size);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_USER_FILES_H_
