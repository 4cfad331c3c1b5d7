#ifndef LOWKEY_SERVER_CONFIG_SUGGESTIONS_H_
#define LOWKEY_SERVER_CONFIG_SUGGESTIONS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace lowkey {

// Returns the candidate with the smallest edit distance to `text`, if near enough to be meant.
std::optional<std::string_view> NearestName(std::string_view text,
                                            absl::Span<const std::string_view> candidates);

// Returns the flag that `text` (without dashes) probably means: the flag that other programs call
// so ("max-tokens", "temp"), else the nearest name, else the name that shares the most words.
std::optional<std::string_view> NearestFlag(std::string_view text,
                                            absl::Span<const std::string_view> flags);

// Returns the command that `text` probably means: "complete" is `generate`.
std::optional<std::string_view> NearestCommand(std::string_view text,
                                               absl::Span<const std::string_view> commands);

// Returns "; did you mean --port?" for "port" and the prefix "--"; empty without a name.
std::string DidYouMean(std::optional<std::string_view> name, std::string_view prefix);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_SUGGESTIONS_H_
