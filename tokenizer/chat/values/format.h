#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_FORMAT_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// Python's str(x): what printing a value writes. A string is itself; a list or dict shows its
// items as Python source does, and is all the user's if any string in it is. The arena's errors.
absl::StatusOr<Text> ToText(const Value& value, Arena& arena);

// Python's repr of a number: "1.0", "1e+16".
std::string FloatText(double value);

// Python's json.dumps.
struct JsonOptions {
  std::optional<std::string> indent = std::nullopt;          // one level's; unset: all in one line
  std::optional<std::string> item_separator = std::nullopt;  // unset: ", ", or "," with an indent
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
// The text is all the user's if any string in it is. INVALID_ARGUMENT: JSON has no such value;
// the arena's errors.
absl::StatusOr<Text> ToJson(const Value& value, const JsonOptions& options, Arena& arena);

// Reads a JSON document as a value whose strings a user wrote; the last of equal keys counts, as in
// Python. INVALID_ARGUMENT: malformed, or an integer over 64 bits; the arena's errors.
absl::StatusOr<Value> FromJson(std::string_view json, Arena& arena);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_FORMAT_H_
