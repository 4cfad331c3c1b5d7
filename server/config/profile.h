#ifndef LOWKEY_SERVER_CONFIG_PROFILE_H_
#define LOWKEY_SERVER_CONFIG_PROFILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/config/selection_rules.h"

namespace lowkey {

// The machine's rates as a JSON file: `lowkey crossover --output` writes it and `lowkey serve
// --profile` reads it; other fields are ignored.
//   {"format": 1, "linear": 4.1e10, "mechanisms": {"standard": {"prefill": 3e10, "decode": 8e9}}}
// Rates are multiply-adds a second.

std::string ProfileJson(const SelectionProfile& profile);

// INVALID_ARGUMENT names `name`, field, value and range.
absl::StatusOr<SelectionProfile> ParseProfile(const std::string& text, const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_PROFILE_H_
