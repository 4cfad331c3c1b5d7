#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_FORMATS_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_FORMATS_H_

#include <optional>
#include <string>
#include <string_view>

namespace lowkey::grammar {

// Returns a regular expression for a `format` of JSON Schema: date-time, date, time, duration,
// email, hostname, ipv4, ipv6, uri or uuid. Every text that it matches has the format; some that
// have the format (a leap day, an escaped URI) are not matched. Nullopt: another name.
std::optional<std::string> PatternOfFormat(std::string_view name);

// Returns whether JSON Schema defines a format of this name. Others (OpenAPI's password, int32) are
// annotations: any text has them.
bool IsFormat(std::string_view name);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_FORMATS_H_
