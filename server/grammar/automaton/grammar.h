#ifndef LOWKEY_SERVER_GRAMMAR_AUTOMATON_GRAMMAR_H_
#define LOWKEY_SERVER_GRAMMAR_AUTOMATON_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/grammar/automaton/dfa.h"

namespace lowkey::grammar {

// The most frames of a stack: how deep texts may nest.
inline constexpr int kMaxDepth = 64;

// A compiled grammar: each rule is a deterministic automaton over bytes, with edges that call other
// rules. No rule calls itself before a byte was read, and every state can reach its rule's end,
// so that a text that began well can always be finished. Immutable, safe to share between threads.
class Grammar {
 public:
  struct State {
    int32_t first_byte = 0, first_call = 0;
    int16_t n_bytes = 0, n_calls = 0;
    int32_t rule = 0;
    bool accepts = false;
    // The frames above this one that finishing the rule takes: 0..kMaxDepth - 1.
    int8_t depth = 0;
    // Returns whether there is nothing left but to return.
    bool is_end() const { return n_bytes == 0 && n_calls == 0; }
  };
  struct Rule {
    int32_t start = 0;
    int least = 0, most = 0;  // of the counter
    bool is_counted = false;
    std::string name = {};
  };

  const State& state(int32_t i) const { return states_[i]; }
  const Rule& rule(int32_t i) const { return rules_[i]; }
  absl::Span<const ByteEdge> bytes(const State& state) const {
    return {&bytes_[state.first_byte], static_cast<size_t>(state.n_bytes)};
  }
  absl::Span<const CallEdge> calls(const State& state) const {
    return {&calls_[state.first_call], static_cast<size_t>(state.n_calls)};
  }
  int32_t root() const { return root_; }
  int32_t n_states() const { return static_cast<int32_t>(states_.size()); }
  int32_t n_rules() const { return static_cast<int32_t>(rules_.size()); }
  // No two grammars of a process have the same.
  uint64_t id() const { return id_; }
  int64_t size_bytes() const;

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<State> states_;
  std::vector<ByteEdge> bytes_;
  std::vector<CallEdge> calls_;
  std::vector<Rule> rules_;
  int32_t root_ = 0;
  uint64_t id_ = 0;
};

// Puts a grammar together from its rules. Rules may be called before they are defined.
class GrammarBuilder {
 public:
  // Returns the new rule's number. `name` is for messages.
  int32_t AddRule(std::string name);
  void Define(int32_t rule, Dfa dfa) { dfas_[rule] = std::move(dfa); }
  int32_t n_rules() const { return static_cast<int32_t>(dfas_.size()); }

  // Every rule is defined. INVALID_ARGUMENT: a rule that begins with itself (naming it), no text
  // of a depth of at most kMaxDepth, over kMaxStates states; the budget's errors.
  absl::StatusOr<std::shared_ptr<const Grammar>> Finish(int32_t root, Budget& budget);

 private:
  absl::Status CheckBeginnings(Budget& budget) const;
  void Flatten(int32_t root);
  struct Look;
  Look Start(int32_t rule) const;
  template <typename Visit>
  void EachEdge(const Look& from, Visit visit) const;
  absl::Status FindDepths(Budget& budget);
  int DepthOf(int32_t state) const;
  void KeepFinishable();

  std::vector<Dfa> dfas_;
  std::vector<std::string> names_;
  std::shared_ptr<Grammar> grammar_;
  std::vector<int> depths_;  // by Look; kMaxDepth: it cannot be finished
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_AUTOMATON_GRAMMAR_H_
