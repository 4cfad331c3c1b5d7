#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_VALUE_TESTS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_VALUE_TESTS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/arguments.h"

namespace lowkey::jinja {

using ValueTest = absl::StatusOr<bool> (*)(const Value& input, const Arguments& arguments,
                                           Arena& arena);

// What may follow `is`; null when there is none of that name here. Tests return INVALID_ARGUMENT
// for what they cannot compare, and the arena's errors.
ValueTest FindTest(std::string_view name);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_VALUE_TESTS_H_
