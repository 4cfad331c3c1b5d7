#ifndef LOWKEY_SERVER_GRAMMAR_SYNTAX_EBNF_H_
#define LOWKEY_SERVER_GRAMMAR_SYNTAX_EBNF_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/grammar.h"

namespace lowkey::grammar {

// Compiles a grammar of named rules, as docs/structured_output.md has them. Rule "root" is the
// beginning; without one the first rule is. INVALID_ARGUMENT beginning with "grammar": a fault of
// the text (and its byte), a rule that is missing, comes twice or begins with itself; the budget's
// errors.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileEbnf(std::string_view text, Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SYNTAX_EBNF_H_
