#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_LEXER_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_LEXER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

enum class TokenKind {
  kData,  // text outside of tags
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // its value, without quotes and escapes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line = 1;

  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// Returns the error "line 3: message".
absl::Status ErrorAt(int line, std::string_view message);

// Returns a template's tokens, the last one kEnd, without the white space that tags take away, as
// jinja2 does with trim_blocks, lstrip_blocks and without the trailing newline.
// INVALID_ARGUMENT, naming the line: over kMaxTemplateBytes, not UTF-8, a tag, comment or string
// that does not end, a character that no expression has.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_LEXER_H_
