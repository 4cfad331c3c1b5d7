#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_METHODS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_METHODS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/arguments.h"

namespace lowkey::jinja {

using TextMethod = absl::StatusOr<Value> (*)(const Text& text, const Arguments& arguments,
                                             Arena& arena);

// The method of strings of that name ("strip"); null when there is none here.
TextMethod FindTextMethod(std::string_view name);

// Whether Python's strings have a method of that name that is not supported here.
bool IsUnsupportedTextMethod(std::string_view name);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_METHODS_H_
