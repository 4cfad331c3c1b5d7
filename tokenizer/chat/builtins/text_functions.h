#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_FUNCTIONS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_FUNCTIONS_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/chat/values/arena.h"
#include "tokenizer/chat/values/text.h"

namespace lowkey::jinja {

// What both filters and methods of strings do. All keep track of the user's bytes and charge the
// arena.

// `count` replacements at most, from the left.
absl::StatusOr<Text> Replace(const Text& text, const Text& old_text, const Text& new_text,
                             std::optional<int64_t> count, Arena& arena);

// By white space when `separator` is null. At most `max_splits` cuts, from the left or the right.
struct SplitOptions {
  const Text* separator = nullptr;
  std::optional<int64_t> max_splits = std::nullopt;
  bool is_from_right = false;
};
absl::StatusOr<std::vector<Text>> Split(const Text& text, const SplitOptions& options,
                                        Arena& arena);

// Without the ends of the lines.
std::vector<Text> SplitLines(const Text& text);

// One character for one: Python's few that become two, such as U+00DF, stay as they are.
enum class Case {
  kUpper,
  kLower,
  kCapitalized,  // the first character upper, the rest lower
  kTitle,        // as str.title: a letter after anything that is none is upper
  kTitleWords,   // as the filter: a letter after white space or one of -({[<
};
Text WithCase(const Text& text, Case wanted);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_TEXT_FUNCTIONS_H_
