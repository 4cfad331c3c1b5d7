#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_PARSER_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tokenizer/chat/jinja/syntax.h"

namespace lowkey::jinja {

// The statements of a template, which may be hostile. INVALID_ARGUMENT, naming line and construct:
// malformed, a statement, filter or test that is not supported, or nested too deep.
absl::StatusOr<Body> ParseTemplate(std::string_view source);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_PARSER_H_
