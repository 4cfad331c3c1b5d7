#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// Python's operators. All charge the arena for the bytes that they read and make, and return its
// errors; INVALID_ARGUMENT, naming the types, when Python does not define the operator for them.

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// Calculates, joins and repeats strings and lists. An integer over 64 bits is an error.
absl::StatusOr<Value> Calculate(Arithmetic op, const Value& a, const Value& b, Arena& arena);
absl::StatusOr<Value> Negate(const Value& value);

absl::StatusOr<bool> AreEqual(const Value& a, const Value& b, Arena& arena);
// Compares numbers with numbers, strings with strings: negative, 0 or positive.
absl::StatusOr<int> Compare(const Value& a, const Value& b, Arena& arena);
// `item in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Arena& arena);

enum class Comparison { kEqual, kUnequal, kLess, kAtMost, kMore, kAtLeast, kIn, kNotIn };

// Returns whether `a comparison b`.
absl::StatusOr<bool> Holds(Comparison comparison, const Value& a, const Value& b, Arena& arena);

// Returns what a loop visits: items, keys or characters; nothing for undefined.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Arena& arena);
// Counts characters, items, or keys.
absl::StatusOr<int64_t> Length(const Value& value, Arena& arena);

// Returns value[key]; undefined where there is none.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key, Arena& arena);

struct SliceBounds {
  std::optional<int64_t> begin = std::nullopt, end = std::nullopt, step = std::nullopt;
};
// value[begin:end:step] of a string or list.
absl::StatusOr<Value> Slice(const Value& value, const SliceBounds& bounds, Arena& arena);

// Returns the text as a message may show it: cut after 128 bytes.
std::string Shown(std::string_view text);
// `"int"`, for messages.
std::string Quoted(std::string_view text);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_
