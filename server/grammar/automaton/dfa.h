#ifndef LOWKEY_SERVER_GRAMMAR_AUTOMATON_DFA_H_
#define LOWKEY_SERVER_GRAMMAR_AUTOMATON_DFA_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/budget.h"

namespace lowkey::grammar {

// EdgeFlags say what an edge does with the counter of its rule's frame. The bits can be combined.
enum EdgeFlags : uint8_t {
  kPlain = 0,
  kCounts = 1,     // adds one
  kBelowMost = 2,  // is open only while the counter is below the rule's `most`
  kFromLeast = 4,  // is open only once the counter has reached the rule's `least`
};

// The bytes first..last lead to `target`.
struct ByteEdge {
  uint8_t first = 0, last = 0;
  uint8_t flags = kPlain;
  int32_t target = 0;
};

// A text of `rule` leads to `target`. `flags` are those of the moment of the call; kCounts adds one
// then too.
struct CallEdge {
  int32_t rule = 0;
  uint8_t flags = kPlain;
  int32_t target = 0;
};

struct DfaState {
  std::vector<ByteEdge> bytes = {};  // sorted, without overlaps
  std::vector<CallEdge> calls = {};  // one per rule
  bool accepts = false;
};

// A deterministic automaton over bytes and calls of rules. State 0 is the beginning. `least` and
// `most` bound the counter, which begins at 0.
struct Dfa {
  std::vector<DfaState> states = {};
  int least = 0, most = kMaxCount + 1;

  int Add(bool accepts = false) {
    states.push_back({.accepts = accepts});
    return static_cast<int>(states.size()) - 1;
  }
  // Adds a byte edge; edges of a state are added in ascending order.
  void Edge(int from, uint8_t first, uint8_t last, int to, uint8_t flags = kPlain) {
    states[static_cast<size_t>(from)].bytes.push_back({first, last, flags, to});
  }
};

// An automaton that may be in many states at once, as expressions become first.
class Nfa {
 public:
  int Add();
  void Skip(int from, int to) { states_[from].skips.push_back(to); }
  void Byte(int from, uint8_t first, uint8_t last, int to) {
    states_[from].bytes.push_back({first, last, kPlain, to});
  }
  void Call(int from, int32_t rule, int to) { states_[from].calls.push_back({rule, kPlain, to}); }
  int n_states() const { return static_cast<int>(states_.size()); }

  // Returns the deterministic automaton of the texts from `begin` to `end`. Budget's errors.
  absl::StatusOr<Dfa> Determinize(int begin, int end, Budget& budget) const;

 private:
  friend class Determinizer;
  struct State {
    std::vector<int> skips;
    std::vector<ByteEdge> bytes;
    std::vector<CallEdge> calls;
  };
  std::vector<State> states_;
};

// Texts that both automata accept, or that `a` accepts and `b` does not. Neither has calls or
// counters.
enum class Combination { kBoth, kFirstOnly };
absl::StatusOr<Dfa> Combine(const Dfa& a, const Dfa& b, Combination combination, Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_AUTOMATON_DFA_H_
