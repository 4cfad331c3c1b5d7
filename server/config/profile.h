#ifndef LOWKEY_SERVER_CONFIG_PROFILE_H_
#define LOWKEY_SERVER_CONFIG_PROFILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "engine/config/selection_rules.h"

namespace lowkey {

// The machine's rates as a JSON file: `lowkey crossover --output` writes it and `lowkey serve
// --profile` reads it; other fields are ignored.
//   {"format": 3, "linear": [{"rows": 1, "rate": 2e10}, ..],
//    "rates": {"standard": [{"tokens": 512, "prefill": 3e10, "decode": 8e9}, ..], ..}}
// Rates are multiply-adds a second; the keys are options as reports show them.

// The most bytes of a file that holds a profile.
inline constexpr size_t kMaxProfileBytes = size_t{1} << 20;

std::string ProfileJson(const SelectionProfile& profile);

// Returns the profile, called by the file's name without its folders. INVALID_ARGUMENT names
// `name`, which is the file's path, field, value and range.
absl::StatusOr<SelectionProfile> ParseProfile(const std::string& text, const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_PROFILE_H_
