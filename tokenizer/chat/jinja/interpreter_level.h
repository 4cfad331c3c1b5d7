#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_LEVEL_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_LEVEL_H_

#include <string_view>

#include "absl/strings/str_cat.h"
#include "tokenizer/chat/jinja/interpreter.h"
#include "tokenizer/chat/jinja/lexer.h"

namespace lowkey::jinja {

// Charges one step, and counts one level of recursion while it lives.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  absl::Status Charge() const {
    const int max_depth = interpreter_.arena_.limits().max_depth;
    if (interpreter_.depth_ > max_depth) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", max_depth,
                       " macros, statements and operations inside each "
                       "other"));
    }
    return interpreter_.arena_.ChargeStep();
  }

 private:
  Interpreter& interpreter_;
};

// "line 3: filter "int": what": `status` with its place, unless it is OK.
inline absl::Status At(int line, std::string_view construct, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("line ", line, ": ", std::string(construct),
                                   construct.empty() ? "" : ": ", std::string(status.message())));
}

template <typename T>
absl::StatusOr<T> At(int line, std::string_view construct, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return At(line, construct, result.status());
}

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_LEVEL_H_
