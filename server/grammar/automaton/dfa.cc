#include "server/grammar/automaton/dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status_macros.h"

namespace lowkey::grammar {
namespace {

using StateSet = std::vector<int>;  // sorted

// Appends an edge, joined with the one before it where they are one.
void AppendEdge(std::vector<ByteEdge>& edges, const ByteEdge& edge) {
  if (!edges.empty() && edges.back().target == edge.target && edges.back().flags == edge.flags &&
      edges.back().last + 1 == edge.first) {
    edges.back().last = edge.last;
  } else {
    edges.push_back(edge);
  }
}

// Returns the target of `byte` in sorted edges, -1 if there is none.
int Target(const std::vector<ByteEdge>& edges, int byte) {
  for (const ByteEdge& edge : edges) {
    if (byte >= edge.first && byte <= edge.last) return edge.target;
  }
  return -1;
}

// Returns the bytes, in order, at which any of the edges begins or the next after its end.
template <typename Edges>
void AddCuts(const Edges& edges, std::vector<int>& cuts) {
  for (const ByteEdge& edge : edges) {
    cuts.push_back(edge.first);
    cuts.push_back(edge.last + 1);
  }
}

void SortUnique(std::vector<int>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

int Nfa::Add() {
  states_.emplace_back();
  return n_states() - 1;
}

// The subset construction.
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, int end, Budget& budget)
      : nfa_(nfa), end_(end), budget_(budget), mark_(nfa.states_.size()) {}

  absl::StatusOr<Dfa> Run(int begin) {
    LK_RETURN_IF_ERROR(IdOf({begin}).status());
    for (size_t i = 0; i < sets_.size(); ++i) {
      LK_RETURN_IF_ERROR(AddByteEdges(i));
      LK_RETURN_IF_ERROR(AddCallEdges(i));
    }
    return std::move(dfa_);
  }

 private:
  // Adds what skips reach.
  absl::Status Close(StateSet& set) {
    ++round_;
    for (int state : set) mark_[state] = round_;
    for (size_t i = 0; i < set.size(); ++i) {
      for (int next : nfa_.states_[set[i]].skips) {
        if (std::exchange(mark_[next], round_) != round_) set.push_back(next);
      }
    }
    std::sort(set.begin(), set.end());
    return budget_.Charge(static_cast<int64_t>(set.size()));
  }

  // States without edges of their own tell nothing apart, but for the end.
  bool Matters(int state) const {
    const Nfa::State& s = nfa_.states_[state];
    return state == end_ || !s.bytes.empty() || !s.calls.empty();
  }

  absl::StatusOr<int> IdOf(StateSet set) {
    SortUnique(set);
    LK_RETURN_IF_ERROR(Close(set));
    std::erase_if(set, [this](int state) { return !Matters(state); });
    const auto [found, is_new] = ids_.try_emplace(set, static_cast<int>(sets_.size()));
    if (is_new) {
      LK_RETURN_IF_ERROR(budget_.ChargeStates(1));
      dfa_.Add(std::binary_search(set.begin(), set.end(), end_));
      sets_.push_back(std::move(set));
    }
    return found->second;
  }

  absl::Status AddByteEdges(size_t i) {
    std::vector<ByteEdge> edges;
    std::vector<int> cuts;
    for (int state : sets_[i]) {
      const auto& more = nfa_.states_[state].bytes;
      edges.insert(edges.end(), more.begin(), more.end());
    }
    AddCuts(edges, cuts);
    SortUnique(cuts);
    std::sort(edges.begin(), edges.end(),
              [](const ByteEdge& a, const ByteEdge& b) { return a.first < b.first; });
    std::vector<ByteEdge> out;
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      StateSet targets;
      for (const ByteEdge& edge : edges) {
        if (edge.first > cuts[c]) break;
        if (edge.last >= cuts[c]) targets.push_back(edge.target);
      }
      LK_RETURN_IF_ERROR(budget_.Charge(static_cast<int64_t>(edges.size())));
      if (targets.empty()) continue;
      LK_ASSIGN_OR_RETURN(const int target, IdOf(std::move(targets)));
      AppendEdge(out, {static_cast<uint8_t>(cuts[c]), static_cast<uint8_t>(cuts[c + 1] - 1), kPlain,
                       target});
    }
    dfa_.states[i].bytes = std::move(out);
    return absl::OkStatus();
  }

  absl::Status AddCallEdges(size_t i) {
    std::map<int32_t, StateSet> targets;
    for (int state : sets_[i]) {
      for (const CallEdge& call : nfa_.states_[state].calls) {
        targets[call.rule].push_back(call.target);
      }
    }
    std::vector<CallEdge> out;
    for (auto& [rule, set] : targets) {
      LK_ASSIGN_OR_RETURN(const int target, IdOf(std::move(set)));
      out.push_back({rule, kPlain, target});
    }
    dfa_.states[i].calls = std::move(out);
    return absl::OkStatus();
  }

  const Nfa& nfa_;
  const int end_;
  Budget& budget_;
  Dfa dfa_;
  std::vector<StateSet> sets_;
  absl::flat_hash_map<StateSet, int> ids_;
  std::vector<int> mark_;
  int round_ = 0;
};

absl::StatusOr<Dfa> Nfa::Determinize(int begin, int end, Budget& budget) const {
  return Determinizer(*this, end, budget).Run(begin);
}

absl::StatusOr<Dfa> Combine(const Dfa& a, const Dfa& b, Combination combination, Budget& budget) {
  constexpr int kDead = -1;  // of `b`
  Dfa out;
  std::vector<std::pair<int, int>> pairs;
  absl::flat_hash_map<std::pair<int, int>, int> ids;
  const bool wants_b = combination == Combination::kBoth;
  const auto id_of = [&](int x, int y) -> absl::StatusOr<int> {
    const auto [found, is_new] = ids.try_emplace({x, y}, static_cast<int>(pairs.size()));
    if (is_new) {
      LK_RETURN_IF_ERROR(budget.ChargeStates(1));
      const bool in_b = y != kDead && b.states[y].accepts;
      out.Add(a.states[x].accepts && in_b == wants_b);
      pairs.push_back({x, y});
    }
    return found->second;
  };
  LK_RETURN_IF_ERROR(id_of(0, 0).status());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    static const std::vector<ByteEdge> kNone;
    const std::vector<ByteEdge>& edges_b = y == kDead ? kNone : b.states[y].bytes;
    std::vector<int> cuts;
    AddCuts(a.states[x].bytes, cuts);
    AddCuts(edges_b, cuts);
    SortUnique(cuts);
    LK_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(cuts.size())));
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const int next_a = Target(a.states[x].bytes, cuts[c]);
      const int next_b = Target(edges_b, cuts[c]);
      if (next_a < 0 || (wants_b && next_b < 0)) continue;
      LK_ASSIGN_OR_RETURN(const int target, id_of(next_a, next_b));
      AppendEdge(out.states[i].bytes, {static_cast<uint8_t>(cuts[c]),
                                       static_cast<uint8_t>(cuts[c + 1] - 1), kPlain, target});
    }
  }
  return out;
}

}  // namespace lowkey::grammar
