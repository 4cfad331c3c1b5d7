#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_JSON_TEXT_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_JSON_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/expression.h"
#include "server/grammar/automaton/grammar.h"

namespace lowkey::grammar {

// Between two tokens of JSON there may be nothing, a space, or a new line and at most kMaxIndent
// spaces. A text without end of white space would be valid JSON and no answer.
inline constexpr int kMaxIndent = 20;

// CountRange says how many characters or items there are.
struct CountRange {
  int least = 0;
  int most = kMaxCount + 1;  // kMaxCount + 1: without bound
};

// Returns the expression of JSON strings whose value is a text of `value`. Characters that JSON
// escapes have one spelling each.
ExpressionPtr Quoted(const ExpressionPtr& value);

// The strings of JSON whose characters number in the range, as an automaton of its own that counts
// them. Every escape counts as the one character that it is.
Dfa StringDfa(const CountRange& length);

// Texts of that many characters.
ExpressionPtr CharsBetween(const CountRange& length);

// Keys of an object: strings without escapes that are none of `names`. Budget's errors.
absl::StatusOr<Dfa> OtherKeysDfa(const std::vector<std::string>& names, Budget& budget);

// Rules that every JSON grammar shares; each is made when it is asked for first.
class JsonRules {
 public:
  JsonRules(GrammarBuilder& builder, Budget& budget) : builder_(builder), budget_(budget) {}

  // White space, as an expression.
  absl::StatusOr<ExpressionPtr> Gap();
  absl::StatusOr<int32_t> String();
  // Any value, any object and any array.
  absl::StatusOr<int32_t> Value();
  absl::StatusOr<int32_t> Object();
  absl::StatusOr<int32_t> Array();

  // An array of rules: `prefix` in order, then `rest` again and again if there is one. An array may
  // end before its prefix does, if `length` allows that.
  absl::StatusOr<Dfa> ArrayDfa(const std::vector<int32_t>& prefix, std::optional<int32_t> rest,
                               CountRange length);
  // An object in braces: `members` of expressions of values, whose keys are their names as JSON.
  absl::StatusOr<ExpressionPtr> Braces(std::vector<Member> members, bool repeats_last);
  // A key with its colon.
  absl::StatusOr<ExpressionPtr> Key(ExpressionPtr name);

 private:
  absl::StatusOr<int32_t> Indent();
  absl::StatusOr<int> AddGap(Dfa& dfa, int from);

  GrammarBuilder& builder_;
  Budget& budget_;
  std::optional<int32_t> indent_, string_, value_, object_, array_;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_JSON_TEXT_H_
