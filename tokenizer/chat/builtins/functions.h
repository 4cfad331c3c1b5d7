#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_FUNCTIONS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_FUNCTIONS_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tokenizer/chat/builtins/arguments.h"

namespace lowkey::jinja {

// What strftime_now shows.
struct Clock {
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
};

// nullopt: no function of that name.
std::optional<Function> FindFunction(std::string_view name);

// INVALID_ARGUMENT: arguments it does not take; the message of raise_exception. The arena's errors.
absl::StatusOr<Value> CallFunction(Function function, const Arguments& arguments,
                                   const Clock& clock, Arena& arena);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_FUNCTIONS_H_
