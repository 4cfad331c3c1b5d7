#ifndef LOWKEY_ENGINE_BASE_PERCENTS_H_
#define LOWKEY_ENGINE_BASE_PERCENTS_H_

#include <optional>
#include <string>
#include <string_view>

namespace lowkey {

// Returns the character that a percent and two hexadecimal digits at the beginning of `text` stand
// for (RFC 3986, section 2.1); nullopt where there are none.
std::optional<char> PercentCharacter(std::string_view text);

// Returns the text with every such character. A percent without its digits stays as it is.
std::string WithoutPercents(std::string_view text);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_PERCENTS_H_
