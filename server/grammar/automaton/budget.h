#ifndef LOWKEY_SERVER_GRAMMAR_AUTOMATON_BUDGET_H_
#define LOWKEY_SERVER_GRAMMAR_AUTOMATON_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tokenizer/interrupt.h"

namespace lowkey::grammar {

// Grammars come from strangers: these bounds hold for every kind of them.
inline constexpr size_t kMaxGrammarBytes = size_t{64} << 10;  // of its text, choices together
inline constexpr int kMaxNesting = 32;           // groups of a pattern, schemas within schemas
inline constexpr int kMaxStates = 20'000;        // of the automaton
inline constexpr int kMaxCount = 65'534;         // of minLength, maxItems and the like
inline constexpr int kMaxRepeat = 10'000;        // of {m,n} in patterns and grammars
inline constexpr int64_t kMaxUnits = 3'000'000;  // steps of work: about a tenth of a second

// Counts the work and the states of one compilation. The bound is in steps, not in time, so that
// the same text is accepted or refused on every machine. Not thread-safe.
class Budget {
 public:
  // `interrupt` is asked now and then; null: nobody is asked. It must outlive the budget.
  explicit Budget(Interrupt* interrupt = nullptr) : interrupt_(interrupt) {}

  // INVALID_ARGUMENT once the work is over kMaxUnits; the interrupt's error.
  absl::Status Charge(int64_t n_units);
  // INVALID_ARGUMENT once there are over kMaxStates states.
  absl::Status ChargeStates(int64_t n_states);

 private:
  Interrupt* const interrupt_;
  int64_t n_units_ = 0, n_states_ = 0;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_AUTOMATON_BUDGET_H_
