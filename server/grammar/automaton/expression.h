#ifndef LOWKEY_SERVER_GRAMMAR_AUTOMATON_EXPRESSION_H_
#define LOWKEY_SERVER_GRAMMAR_AUTOMATON_EXPRESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/grammar/automaton/char_set.h"
#include "server/grammar/automaton/dfa.h"

namespace lowkey::grammar {

struct Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;

// One member of an object: its key with all that comes before the value, and the value.
struct Member {
  ExpressionPtr key, value;
  bool is_required = false;
};

// Expression is what a rule spells: a tree that never changes once it is made. Its depth is bounded
// by whoever parses it.
struct Expression {
  enum class Kind {
    kText,      // the bytes of `text`
    kChars,     // one character of `chars`
    kSequence,  // `parts`, one after another
    kChoice,    // one of `parts`; without parts it spells nothing, not even the empty text
    kRepeat,    // parts[0], min to max times; max -1: without end
    kCall,      // the rule `rule`
    kDfa,       // a text of `dfa`
    kMembers,   // `members` in their order with `separator` between them; those that are not
                // required may be missing, and the last may come again and again if `repeats_last`
  };
  Kind kind = Kind::kText;
  std::string text = {};
  CharSet chars = {};
  std::vector<ExpressionPtr> parts = {};
  int min = 0, max = 0;
  int32_t rule = 0;
  std::shared_ptr<const Dfa> dfa = nullptr;
  std::vector<Member> members = {};
  ExpressionPtr separator = nullptr;
  bool repeats_last = false;
};

ExpressionPtr Text(std::string text);
ExpressionPtr Chars(CharSet chars);
ExpressionPtr Sequence(std::vector<ExpressionPtr> parts);
ExpressionPtr Choice(std::vector<ExpressionPtr> parts);
ExpressionPtr Repeat(ExpressionPtr part, int min, int max);
ExpressionPtr Call(int32_t rule);
ExpressionPtr Automaton(Dfa dfa);
inline ExpressionPtr Nothing() { return Choice({}); }
inline ExpressionPtr Optional(ExpressionPtr part) { return Repeat(std::move(part), 0, 1); }

// Returns the automaton of the expression. Budget's errors.
absl::StatusOr<Dfa> ToDfa(const Expression& expression, Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_AUTOMATON_EXPRESSION_H_
