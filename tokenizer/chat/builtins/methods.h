#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_METHODS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_METHODS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/arguments.h"
#include "tokenizer/chat/values/arena.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// value.name: a method of its type, an attribute of a namespace or loop, else value[name];
// undefined where there is none. INVALID_ARGUMENT: `value` is undefined (names it), or the method
// is one of Python's that is not supported or, as it changes a list or dict, refused.
absl::StatusOr<Value> GetAttribute(const Value& value, const Text& name, Arena& arena);

// value[key]: an item, else an attribute. The same errors.
absl::StatusOr<Value> GetSubscript(const Value& value, const Value& key, Arena& arena);

// Calls what GetAttribute gave. INVALID_ARGUMENT: arguments it does not take.
absl::StatusOr<Value> CallMethod(const Method& method, const Arguments& arguments, Arena& arena);

// "'x' is undefined".
absl::Status UndefinedError(const Value& value);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_METHODS_H_
