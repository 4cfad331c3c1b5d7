#ifndef LOWKEY_SERVER_GRAMMAR_SYNTAX_REGEX_H_
#define LOWKEY_SERVER_GRAMMAR_SYNTAX_REGEX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/expression.h"

namespace lowkey::grammar {

enum class Match {
  kWhole,   // the expression matches the whole text
  kSearch,  // it matches somewhere in the text, unless ^ and $ say where
};

// Parses a regular expression: characters, ".", classes, \d \w \s and their opposites, groups
// (without back references), |, *, +, ?, {m,n}, lazy or not, ^ and $ at the ends of branches of
// the whole. INVALID_ARGUMENT beginning with `name`: anything else, groups nested deeper than
// kMaxNesting.
absl::StatusOr<ExpressionPtr> ParseRegex(std::string_view text, const std::string& name,
                                         Match match);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SYNTAX_REGEX_H_
