#include "server/grammar/automaton/grammar.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::grammar {
namespace {

constexpr int kNever = kMaxDepth;  // a depth that leaves no room for the frame itself

// Finds the states that a rule may be in before it has read a byte.
template <typename Visit>
void EachStateBeforeBytes(const Dfa& dfa, const std::vector<bool>& may_be_empty, Visit visit) {
  std::vector<bool> seen(dfa.states.size());
  std::vector<int> todo = {0};
  seen[0] = true;
  while (!todo.empty()) {
    const DfaState& state = dfa.states[todo.back()];
    todo.pop_back();
    visit(state);
    for (const CallEdge& call : state.calls) {
      if (!may_be_empty[call.rule] || seen[call.target]) continue;
      seen[call.target] = true;
      todo.push_back(call.target);
    }
  }
}

}  // namespace

int64_t Grammar::size_bytes() const {
  return static_cast<int64_t>(states_.size() * sizeof(State) + bytes_.size() * sizeof(ByteEdge) +
                              calls_.size() * sizeof(CallEdge) + rules_.size() * sizeof(Rule));
}

int32_t GrammarBuilder::AddRule(std::string name) {
  dfas_.emplace_back();
  names_.push_back(std::move(name));
  return n_rules() - 1;
}

// Refuses rules that call themselves before a byte was read.
absl::Status GrammarBuilder::CheckBeginnings(Budget& budget) const {
  std::vector<bool> may_be_empty(dfas_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t r = 0; r < dfas_.size(); ++r) {
      if (may_be_empty[r]) continue;
      bool accepts = false;
      int64_t n = 1;
      EachStateBeforeBytes(dfas_[r], may_be_empty, [&](const DfaState& state) {
        accepts = accepts || state.accepts;
        n += 1 + static_cast<int64_t>(state.calls.size());
      });
      LK_RETURN_IF_ERROR(budget.Charge(n));
      if (accepts) may_be_empty[r] = changed = true;
    }
  }
  std::vector<std::vector<int32_t>> begins_with(dfas_.size());
  for (size_t r = 0; r < dfas_.size(); ++r) {
    EachStateBeforeBytes(dfas_[r], may_be_empty, [&](const DfaState& state) {
      for (const CallEdge& call : state.calls) begins_with[r].push_back(call.rule);
    });
    LK_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(begins_with[r].size())));
  }
  // Takes away rule after rule that begins with none of those left; what remains is in a circle.
  std::vector<int> n_open(dfas_.size());
  std::vector<std::vector<int32_t>> callers(dfas_.size());
  std::vector<int32_t> done;
  for (size_t r = 0; r < dfas_.size(); ++r) {
    n_open[r] = static_cast<int>(begins_with[r].size());
    for (int32_t called : begins_with[r]) callers[called].push_back(static_cast<int32_t>(r));
    if (n_open[r] == 0) done.push_back(static_cast<int32_t>(r));
  }
  for (size_t i = 0; i < done.size(); ++i) {
    for (int32_t caller : callers[done[i]]) {
      if (--n_open[caller] == 0) done.push_back(caller);
    }
  }
  for (size_t r = 0; r < dfas_.size(); ++r) {
    if (n_open[r] == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(names_[r], ": begins with itself, expected a text before it comes again"));
  }
  return absl::OkStatus();
}

void GrammarBuilder::Flatten(int32_t root) {
  Grammar& g = *grammar_;
  g.root_ = root;
  int32_t n_states = 0;
  for (size_t r = 0; r < dfas_.size(); ++r) {
    const Dfa& dfa = dfas_[r];
    const bool is_counted = dfa.least > 0 || dfa.most <= kMaxCount;
    g.rules_.push_back({n_states, dfa.least, dfa.most, is_counted, names_[r]});
    for (const DfaState& state : dfa.states) {
      Grammar::State flat;
      flat.first_byte = static_cast<int32_t>(g.bytes_.size());
      flat.first_call = static_cast<int32_t>(g.calls_.size());
      flat.n_bytes = static_cast<int16_t>(state.bytes.size());
      flat.n_calls = static_cast<int16_t>(state.calls.size());
      flat.rule = static_cast<int32_t>(r);
      flat.accepts = state.accepts;
      for (ByteEdge edge : state.bytes) {
        edge.target += n_states;
        g.bytes_.push_back(edge);
      }
      for (CallEdge edge : state.calls) {
        edge.target += n_states;
        g.calls_.push_back(edge);
      }
      g.states_.push_back(flat);
    }
    n_states += static_cast<int32_t>(dfa.states.size());
  }
}

// A state is looked at twice: with its rule's counter below the lower bound, where leaving edges
// are closed until one more round was made, and with the counter at the bound.
struct GrammarBuilder::Look {
  int32_t state = 0;
  bool is_counted_up = true;
  size_t index() const { return 2 * static_cast<size_t>(state) + (is_counted_up ? 1 : 0); }
};

GrammarBuilder::Look GrammarBuilder::Start(int32_t rule) const {
  return {grammar_->rules_[rule].start, grammar_->rules_[rule].least == 0};
}

template <typename Visit>  // (the look behind an edge, the start of the rule that it calls or null)
void GrammarBuilder::EachEdge(const Look& from, Visit visit) const {
  const Grammar& g = *grammar_;
  const Grammar::State& state = g.states_[from.state];
  const auto behind = [&](int32_t target, uint8_t flags) {
    return Look{target, from.is_counted_up || (flags & kCounts) != 0};
  };
  const auto is_open = [&](uint8_t flags) {
    return from.is_counted_up || (flags & kFromLeast) == 0;
  };
  for (const ByteEdge& e : g.bytes(state)) {
    if (is_open(e.flags)) visit(behind(e.target, e.flags), nullptr);
  }
  for (const CallEdge& e : g.calls(state)) {
    const Look start = Start(e.rule);
    if (is_open(e.flags)) visit(behind(e.target, e.flags), &start);
  }
}

// Finds how many frames above a state's own finishing its rule takes: begins with "never" and
// lowers what can be lowered until nothing changes.
absl::Status GrammarBuilder::FindDepths(Budget& budget) {
  const Grammar& g = *grammar_;
  const auto n = static_cast<int32_t>(g.states_.size());
  depths_.assign(2 * static_cast<size_t>(n), kNever);
  std::vector<std::vector<Look>> dependents(depths_.size());
  std::vector<Look> todo;
  for (int32_t i = n - 1; i >= 0; --i) {
    for (const bool is_counted_up : {true, false}) {
      const Look look{i, is_counted_up};
      if (!is_counted_up && g.rules_[g.states_[i].rule].least == 0) continue;
      todo.push_back(look);
      EachEdge(look, [&](const Look& behind, const Look* start) {
        dependents[behind.index()].push_back(look);
        if (start != nullptr) dependents[start->index()].push_back(look);
      });
    }
  }
  std::vector<bool> waits(depths_.size(), true);
  while (!todo.empty()) {
    std::vector<Look> now;
    now.swap(todo);
    for (const Look& look : now) {
      waits[look.index()] = false;
      int depth = g.states_[look.state].accepts && look.is_counted_up ? 0 : kNever;
      int64_t n_edges = 1;
      EachEdge(look, [&](const Look& behind, const Look* start) {
        const int above = start == nullptr ? 0 : depths_[start->index()] + 1;
        depth = std::min(depth, std::max(above, depths_[behind.index()]));
        ++n_edges;
      });
      LK_RETURN_IF_ERROR(budget.Charge(n_edges));
      if (depth >= depths_[look.index()]) continue;
      depths_[look.index()] = depth;
      for (const Look& dependent : dependents[look.index()]) {
        if (waits[dependent.index()]) continue;
        waits[dependent.index()] = true;
        todo.push_back(dependent);
      }
    }
  }
  return absl::OkStatus();
}

// Returns the depth that is enough for a state whatever its counter; kNever if it is a dead end.
int GrammarBuilder::DepthOf(int32_t state) const {
  const int low = depths_[Look{state, false}.index()], high = depths_[Look{state, true}.index()];
  if (low == kNever || high == kNever) return std::min(low, high);
  return std::max(low, high);
}

// Drops edges into states that cannot be finished.
void GrammarBuilder::KeepFinishable() {
  Grammar& g = *grammar_;
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
  for (size_t i = 0; i < g.states_.size(); ++i) {
    Grammar::State& state = g.states_[i];
    const auto old_bytes = g.bytes(state);
    const auto old_calls = g.calls(state);
    state.first_byte = static_cast<int32_t>(bytes.size());
    state.first_call = static_cast<int32_t>(calls.size());
    for (const ByteEdge& e : old_bytes) {
      if (DepthOf(e.target) < kNever) bytes.push_back(e);
    }
    for (const CallEdge& e : old_calls) {
      const int deepest = std::max(depths_[Start(e.rule).index()] + 1, DepthOf(e.target));
      if (deepest < kNever) calls.push_back(e);
    }
    state.n_bytes = static_cast<int16_t>(static_cast<int32_t>(bytes.size()) - state.first_byte);
    state.n_calls = static_cast<int16_t>(static_cast<int32_t>(calls.size()) - state.first_call);
    state.depth = static_cast<int8_t>(DepthOf(static_cast<int32_t>(i)));
  }
  // Spans of states without edges point at an element too.
  bytes.emplace_back();
  calls.emplace_back();
  g.bytes_ = std::move(bytes);
  g.calls_ = std::move(calls);
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarBuilder::Finish(int32_t root,
                                                                      Budget& budget) {
  static std::atomic<uint64_t> next_id{1};
  LK_RETURN_IF_ERROR(CheckBeginnings(budget));
  grammar_ = std::shared_ptr<Grammar>(new Grammar);
  Flatten(root);
  grammar_->bytes_.emplace_back();
  grammar_->calls_.emplace_back();
  LK_RETURN_IF_ERROR(FindDepths(budget));
  if (depths_[Start(root).index()] >= kNever) {
    return absl::InvalidArgumentError(absl::StrCat(
        names_[root], ": no text satisfies it, expected at least one that nests at most ",
        kMaxDepth, " deep"));
  }
  KeepFinishable();
  grammar_->id_ = next_id++;
  return std::shared_ptr<const Grammar>(std::move(grammar_));
}

}  // namespace lowkey::grammar
