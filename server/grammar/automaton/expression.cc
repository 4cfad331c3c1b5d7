#include "server/grammar/automaton/expression.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey::grammar {
namespace {

using Kind = Expression::Kind;

// Bounds the memory of an automaton that is not deterministic yet: some 80 bytes a state.
constexpr int kMostNfaStates = 16 * kMaxStates;

ExpressionPtr Make(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}

// Adds expressions to an automaton. Each function begins at a state and returns the end.
class Emitter {
 public:
  explicit Emitter(Budget& budget) : budget_(budget) {}

  Nfa& nfa() { return nfa_; }

  absl::StatusOr<int> Emit(const Expression& e, int from) {
    LK_RETURN_IF_ERROR(budget_.Charge(1));
    if (nfa_.n_states() > kMostNfaStates) {
      return absl::InvalidArgumentError(
          "too complex: repetitions within repetitions make too many states");
    }
    switch (e.kind) {
      case Kind::kText:
        return EmitText(e.text, from);
      case Kind::kChars:
        return EmitChars(e.chars, from);
      case Kind::kSequence:
        for (const ExpressionPtr& part : e.parts) {
          LK_ASSIGN_OR_RETURN(from, Emit(*part, from));
        }
        return from;
      case Kind::kChoice:
        return EmitChoice(e, from);
      case Kind::kRepeat:
        return EmitRepeat(e, from);
      case Kind::kCall: {
        const int to = nfa_.Add();
        nfa_.Call(from, e.rule, to);
        return to;
      }
      case Kind::kDfa:
        return EmitDfa(*e.dfa, from);
      case Kind::kMembers:
        break;
    }
    return EmitMembers(e, from);
  }

 private:
  absl::StatusOr<int> EmitText(const std::string& text, int from) {
    LK_RETURN_IF_ERROR(budget_.Charge(static_cast<int64_t>(text.size())));
    for (char c : text) {
      const int to = nfa_.Add();
      nfa_.Byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
      from = to;
    }
    return from;
  }

  absl::StatusOr<int> EmitChars(const CharSet& chars, int from) {
    const int to = nfa_.Add();
    int64_t n_edges = 0;
    ForEachUtf8(chars, [&](const std::vector<ByteRange8>& bytes) {
      int at = from;
      for (size_t i = 0; i < bytes.size(); ++i, ++n_edges) {
        const int next = i + 1 == bytes.size() ? to : nfa_.Add();
        nfa_.Byte(at, bytes[i].first, bytes[i].last, next);
        at = next;
      }
    });
    LK_RETURN_IF_ERROR(budget_.Charge(n_edges));
    return to;
  }

  absl::StatusOr<int> EmitChoice(const Expression& e, int from) {
    const int to = nfa_.Add();
    for (const ExpressionPtr& part : e.parts) {
      const int begin = nfa_.Add();
      nfa_.Skip(from, begin);
      LK_ASSIGN_OR_RETURN(const int end, Emit(*part, begin));
      nfa_.Skip(end, to);
    }
    return to;
  }

  absl::StatusOr<int> EmitRepeat(const Expression& e, int from) {
    for (int i = 0; i < e.min; ++i) {
      LK_ASSIGN_OR_RETURN(from, Emit(*e.parts[0], from));
    }
    const int to = nfa_.Add();
    if (e.max < 0) {
      const int loop = nfa_.Add();
      nfa_.Skip(from, loop);
      LK_ASSIGN_OR_RETURN(const int end, Emit(*e.parts[0], loop));
      nfa_.Skip(end, loop);
      nfa_.Skip(loop, to);
      return to;
    }
    for (int i = e.min; i < e.max; ++i) {
      nfa_.Skip(from, to);
      const int begin = nfa_.Add();
      nfa_.Skip(from, begin);
      LK_ASSIGN_OR_RETURN(from, Emit(*e.parts[0], begin));
    }
    nfa_.Skip(from, to);
    return to;
  }

  absl::StatusOr<int> EmitDfa(const Dfa& dfa, int from) {
    LK_RETURN_IF_ERROR(budget_.Charge(static_cast<int64_t>(dfa.states.size())));
    const int first = nfa_.n_states();
    for (size_t i = 0; i < dfa.states.size(); ++i) nfa_.Add();
    const int to = nfa_.Add();
    nfa_.Skip(from, first);
    for (size_t i = 0; i < dfa.states.size(); ++i) {
      const int at = first + static_cast<int>(i);
      for (const ByteEdge& edge : dfa.states[i].bytes) {
        nfa_.Byte(at, edge.first, edge.last, first + edge.target);
      }
      if (dfa.states[i].accepts) nfa_.Skip(at, to);
    }
    return to;
  }

  // Two states stand between any two members: `first`, where none has come yet, and `later`.
  absl::StatusOr<int> EmitMembers(const Expression& e, int from) {
    int first = from, later = nfa_.Add();
    for (size_t i = 0; i < e.members.size(); ++i) {
      const Member& member = e.members[i];
      const int next_first = nfa_.Add(), next_later = nfa_.Add();
      if (!member.is_required) {
        nfa_.Skip(first, next_first);
        nfa_.Skip(later, next_later);
      }
      const int begin = nfa_.Add();
      nfa_.Skip(first, begin);
      LK_ASSIGN_OR_RETURN(const int separated, Emit(*e.separator, later));
      nfa_.Skip(separated, begin);
      LK_ASSIGN_OR_RETURN(const int valued, Emit(*member.key, begin));
      LK_ASSIGN_OR_RETURN(const int end, Emit(*member.value, valued));
      nfa_.Skip(end, next_later);
      if (e.repeats_last && i + 1 == e.members.size()) nfa_.Skip(end, later);
      first = next_first;
      later = next_later;
    }
    const int to = nfa_.Add();
    nfa_.Skip(first, to);
    nfa_.Skip(later, to);
    return to;
  }

  Budget& budget_;
  Nfa nfa_;
};

}  // namespace

ExpressionPtr Text(std::string text) {
  return Make({.kind = Kind::kText, .text = std::move(text)});
}
ExpressionPtr Chars(CharSet chars) {
  return Make({.kind = Kind::kChars, .chars = std::move(chars)});
}
ExpressionPtr Sequence(std::vector<ExpressionPtr> parts) {
  return Make({.kind = Kind::kSequence, .parts = std::move(parts)});
}
ExpressionPtr Choice(std::vector<ExpressionPtr> parts) {
  return Make({.kind = Kind::kChoice, .parts = std::move(parts)});
}
ExpressionPtr Repeat(ExpressionPtr part, int min, int max) {
  return Make({.kind = Kind::kRepeat, .parts = {std::move(part)}, .min = min, .max = max});
}
ExpressionPtr Call(int32_t rule) { return Make({.kind = Kind::kCall, .rule = rule}); }
ExpressionPtr Automaton(Dfa dfa) {
  return Make({.kind = Kind::kDfa, .dfa = std::make_shared<const Dfa>(std::move(dfa))});
}

absl::StatusOr<Dfa> ToDfa(const Expression& expression, Budget& budget) {
  Emitter emitter(budget);
  const int begin = emitter.nfa().Add();
  LK_ASSIGN_OR_RETURN(const int end, emitter.Emit(expression, begin));
  return emitter.nfa().Determinize(begin, end, budget);
}

}  // namespace lowkey::grammar
