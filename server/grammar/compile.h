#ifndef LOWKEY_SERVER_GRAMMAR_COMPILE_H_
#define LOWKEY_SERVER_GRAMMAR_COMPILE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/grammar.h"
#include "server/grammar/schema/schema.h"
#include "server/grammar/syntax/ebnf.h"

namespace lowkey::grammar {

// Each of these, CompileJsonSchema and CompileEbnf takes a description from a stranger. All return
// INVALID_ARGUMENT naming the form and the fault, or the error of the budget's interrupt. Texts of
// more than kMaxGrammarBytes are refused by CheckGrammarBytes, which callers ask first.

// INVALID_ARGUMENT beginning with `form`.
absl::Status CheckGrammarBytes(std::string_view form, size_t n_bytes);

// Any JSON object.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonObject(Budget& budget);
// The texts that a regular expression (regex.h) matches as a whole.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileRegex(std::string_view text, Budget& budget);
// One of the texts, each in UTF-8 and not empty.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileChoice(const std::vector<std::string>& texts,
                                                             Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_COMPILE_H_
