#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/values/arena.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// Python's operators. All charge the arena for what they read and make, and return its errors;
// INVALID_ARGUMENT, naming the types, for what Python has no meaning for.

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// Also joins and repeats strings and lists. Integers have 64 bits; past them is an error.
absl::StatusOr<Value> Calculate(Arithmetic op, const Value& a, const Value& b, Arena& arena);
absl::StatusOr<Value> Negate(const Value& value);

absl::StatusOr<bool> AreEqual(const Value& a, const Value& b, Arena& arena);
// Numbers with numbers, strings with strings: negative, 0 or positive.
absl::StatusOr<int> Compare(const Value& a, const Value& b, Arena& arena);
// `item in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Arena& arena);

// What a loop over `value` visits: items, keys or characters; nothing for undefined.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Arena& arena);
// Characters, items, or keys.
absl::StatusOr<int64_t> Length(const Value& value, Arena& arena);

// value[key]. Undefined where there is none.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key, Arena& arena);

struct SliceBounds {
  std::optional<int64_t> begin = std::nullopt, end = std::nullopt, step = std::nullopt;
};
// value[begin:end:step] of a string or list.
absl::StatusOr<Value> Slice(const Value& value, const SliceBounds& bounds, Arena& arena);

// `"int"`, for messages.
std::string Quoted(std::string_view text);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_OPERATORS_H_
