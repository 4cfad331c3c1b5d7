#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_NUMBERS_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_NUMBERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/expression.h"

namespace lowkey::grammar {

// A bound of numbers as JSON spells it: "-1.5", "1e3".
struct NumberBound {
  std::string text = {};
  bool is_open = false;  // whether the bound itself lies outside
};

struct NumberRange {
  bool is_integer = false;
  std::vector<NumberBound> least = {}, most = {};  // all of them hold
};

// Digits that a number may have before the point; and after it. Every number is then one that all
// readers of JSON can hold.
inline constexpr int kIntegerDigits = 18, kFractionDigits = 16;

// Returns the JSON numbers of a range: without exponent if they are integers or the range has a
// bound. INVALID_ARGUMENT for a bound of over 400 digits; the budget's errors.
absl::StatusOr<ExpressionPtr> NumbersOf(const NumberRange& range, Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_NUMBERS_H_
