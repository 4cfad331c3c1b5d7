#include "server/grammar/schema/json_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "server/grammar/schema/numbers.h"

namespace lowkey::grammar {
namespace {

// Characters that stand for themselves in a JSON string.
CharSet PlainChars() {
  return CharSet::FromRanges({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
}

// Returns the one spelling that we give a character that must be escaped.
std::string EscapeOf(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      return absl::StrFormat("\\u%04x", c);
  }
}

// Where a class has other characters too, rare control characters are left out: they would make it
// large.
ExpressionPtr EscapedChars(const CharSet& chars) {
  std::vector<ExpressionPtr> choices;
  CharSet plain = chars.Intersection(PlainChars());
  CharSet special = chars.Intersection(PlainChars().Complement());
  if (!plain.empty()) {
    choices.push_back(Chars(std::move(plain)));
    special = special.Intersection(CharSet::Of("\"\\\n\r\t"));
  }
  for (const auto& [first, last] : special.ranges()) {
    for (uint32_t c = first; c <= last; ++c) choices.push_back(Text(EscapeOf(c)));
  }
  return Choice(std::move(choices));
}

// `value` with every character as a JSON string has it.
ExpressionPtr Escaped(const ExpressionPtr& value) {
  using Kind = Expression::Kind;
  if (value->kind == Kind::kChars) return EscapedChars(value->chars);
  if (value->kind == Kind::kText) {
    std::string text;
    for (char c : value->text) {
      const auto byte = static_cast<uint8_t>(c);
      const bool is_plain = byte >= 0x20 && c != '"' && c != '\\';
      is_plain ? text.push_back(c) : void(text += EscapeOf(byte));
    }
    return Text(std::move(text));
  }
  Expression copy = *value;
  for (ExpressionPtr& part : copy.parts) part = Escaped(part);
  return std::make_shared<const Expression>(std::move(copy));
}

// Adds the UTF-8 forms of all characters past U+007F from one state to another.
void AddWideChars(Dfa& dfa, int from, int to, uint8_t from_flags, uint8_t to_flags) {
  const int one = dfa.Add(), two = dfa.Add(), three = dfa.Add();
  const int e0 = dfa.Add(), ed = dfa.Add(), f0 = dfa.Add(), f4 = dfa.Add();
  dfa.Edge(one, 0x80, 0xBF, to, to_flags);
  dfa.Edge(two, 0x80, 0xBF, one);
  dfa.Edge(three, 0x80, 0xBF, two);
  dfa.Edge(e0, 0xA0, 0xBF, one);
  dfa.Edge(ed, 0x80, 0x9F, one);
  dfa.Edge(f0, 0x90, 0xBF, two);
  dfa.Edge(f4, 0x80, 0x8F, two);
  dfa.Edge(from, 0xC2, 0xDF, one, from_flags);
  dfa.Edge(from, 0xE0, 0xE0, e0, from_flags);
  dfa.Edge(from, 0xE1, 0xEC, two, from_flags);
  dfa.Edge(from, 0xED, 0xED, ed, from_flags);
  dfa.Edge(from, 0xEE, 0xEF, two, from_flags);
  dfa.Edge(from, 0xF0, 0xF0, f0, from_flags);
  dfa.Edge(from, 0xF1, 0xF3, three, from_flags);
  dfa.Edge(from, 0xF4, 0xF4, f4, from_flags);
}

// Adds what follows a backslash: one of "\/bfnrt or u and four digits that are no surrogate.
void AddEscapes(Dfa& dfa, int from, int to, uint8_t to_flags) {
  const auto hex = [&dfa](int at, int next, uint8_t flags) {
    dfa.Edge(at, '0', '9', next, flags);
    dfa.Edge(at, 'A', 'F', next, flags);
    dfa.Edge(at, 'a', 'f', next, flags);
  };
  const int u = dfa.Add(), d = dfa.Add(), second = dfa.Add(), third = dfa.Add(), last = dfa.Add();
  for (char c : std::string_view("\"/\\bfnrt")) {
    dfa.Edge(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to, to_flags);
  }
  dfa.Edge(from, 'u', 'u', u);
  dfa.Edge(u, '0', '9', second);
  dfa.Edge(u, 'A', 'C', second);
  dfa.Edge(u, 'D', 'D', d);
  dfa.Edge(u, 'E', 'F', second);
  dfa.Edge(u, 'a', 'c', second);
  dfa.Edge(u, 'd', 'd', d);
  dfa.Edge(u, 'e', 'f', second);
  dfa.Edge(d, '0', '7', third);
  hex(second, third, kPlain);
  hex(third, last, kPlain);
  hex(last, to, to_flags);
}

}  // namespace

ExpressionPtr Quoted(const ExpressionPtr& value) {
  return Sequence({Text("\""), Escaped(value), Text("\"")});
}

ExpressionPtr CharsBetween(const CountRange& length) {
  return Repeat(Chars(CharSet::All()), length.least,
                length.most > kMaxCount ? -1 : std::max(length.least, length.most));
}

Dfa StringDfa(const CountRange& length) {
  Dfa dfa;
  dfa.least = length.least;
  dfa.most = length.most;
  const bool counts = length.least > 0 || length.most <= kMaxCount;
  const uint8_t begin = counts ? kBelowMost : kPlain, end = counts ? kCounts : kPlain;
  const auto both = static_cast<uint8_t>(begin | end);
  const int open = dfa.Add(), inside = dfa.Add(), escape = dfa.Add(), done = dfa.Add(true);
  dfa.Edge(open, '"', '"', inside);
  dfa.Edge(inside, ' ', '!', inside, both);
  dfa.Edge(inside, '"', '"', done, counts ? kFromLeast : kPlain);
  dfa.Edge(inside, '#', '[', inside, both);
  dfa.Edge(inside, '\\', '\\', escape, begin);
  dfa.Edge(inside, ']', 0x7F, inside, both);
  AddWideChars(dfa, inside, inside, begin, end);
  AddEscapes(dfa, escape, inside, end);
  return dfa;
}

absl::StatusOr<Dfa> OtherKeysDfa(const std::vector<std::string>& names, Budget& budget) {
  std::vector<ExpressionPtr> known;
  for (const std::string& name : names) known.push_back(Quoted(Text(name)));
  LK_ASSIGN_OR_RETURN(const Dfa known_dfa, ToDfa(*Choice(std::move(known)), budget));
  const ExpressionPtr any = Sequence({Text("\""), Repeat(Chars(PlainChars()), 0, -1), Text("\"")});
  LK_ASSIGN_OR_RETURN(const Dfa any_dfa, ToDfa(*any, budget));
  return Combine(any_dfa, known_dfa, Combination::kFirstOnly, budget);
}

absl::StatusOr<int32_t> JsonRules::Indent() {
  if (indent_.has_value()) return *indent_;
  LK_RETURN_IF_ERROR(budget_.ChargeStates(1));
  Dfa dfa;
  dfa.most = kMaxIndent;
  dfa.Edge(dfa.Add(true), ' ', ' ', 0, kCounts | kBelowMost);
  indent_ = builder_.AddRule("white space");
  builder_.Define(*indent_, std::move(dfa));
  return *indent_;
}

absl::StatusOr<ExpressionPtr> JsonRules::Gap() {
  LK_ASSIGN_OR_RETURN(const int32_t indent, Indent());
  return Optional(Choice({Text(" "), Sequence({Text("\n"), Call(indent)})}));
}

absl::StatusOr<int32_t> JsonRules::String() {
  if (string_.has_value()) return *string_;
  Dfa dfa = StringDfa({});
  LK_RETURN_IF_ERROR(budget_.ChargeStates(static_cast<int64_t>(dfa.states.size())));
  string_ = builder_.AddRule("string");
  builder_.Define(*string_, std::move(dfa));
  return *string_;
}

absl::StatusOr<ExpressionPtr> JsonRules::Key(ExpressionPtr name) {
  LK_ASSIGN_OR_RETURN(const ExpressionPtr gap, Gap());
  return Sequence({std::move(name), Text(":"), gap});
}

absl::StatusOr<ExpressionPtr> JsonRules::Braces(std::vector<Member> members, bool repeats_last) {
  LK_ASSIGN_OR_RETURN(const ExpressionPtr gap, Gap());
  Expression list;
  list.kind = Expression::Kind::kMembers;
  list.members = std::move(members);
  list.separator = Sequence({Text(","), gap});
  list.repeats_last = repeats_last;
  return Sequence(
      {Text("{"), gap, std::make_shared<const Expression>(std::move(list)), gap, Text("}")});
}

absl::StatusOr<int32_t> JsonRules::Object() {
  if (object_.has_value()) return *object_;
  object_ = builder_.AddRule("object");
  LK_ASSIGN_OR_RETURN(const int32_t string, String());
  LK_ASSIGN_OR_RETURN(const int32_t value, Value());
  LK_ASSIGN_OR_RETURN(ExpressionPtr key, Key(Call(string)));
  std::vector<Member> members = {{std::move(key), Call(value), false}};
  LK_ASSIGN_OR_RETURN(const ExpressionPtr braces, Braces(std::move(members), true));
  LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*braces, budget_));
  builder_.Define(*object_, std::move(dfa));
  return *object_;
}

absl::StatusOr<int32_t> JsonRules::Array() {
  if (array_.has_value()) return *array_;
  array_ = builder_.AddRule("array");
  LK_ASSIGN_OR_RETURN(const int32_t value, Value());
  LK_ASSIGN_OR_RETURN(Dfa dfa, ArrayDfa({}, value, {}));
  builder_.Define(*array_, std::move(dfa));
  return *array_;
}

absl::StatusOr<int32_t> JsonRules::Value() {
  if (value_.has_value()) return *value_;
  value_ = builder_.AddRule("value");
  LK_ASSIGN_OR_RETURN(const int32_t object, Object());
  LK_ASSIGN_OR_RETURN(const int32_t array, Array());
  LK_ASSIGN_OR_RETURN(const int32_t string, String());
  LK_ASSIGN_OR_RETURN(ExpressionPtr number, NumbersOf({}, budget_));
  const ExpressionPtr any = Choice({Call(object), Call(array), Call(string), std::move(number),
                                    Text("true"), Text("false"), Text("null")});
  LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*any, budget_));
  builder_.Define(*value_, std::move(dfa));
  return *value_;
}

// Adds white space behind `from`. Returns a state that goes on after a space, as `from` itself must
// after none. The caller gives both the same edges.
absl::StatusOr<int> JsonRules::AddGap(Dfa& dfa, int from) {
  LK_ASSIGN_OR_RETURN(const int32_t indent, Indent());
  const int line = dfa.Add(), after = dfa.Add();
  dfa.Edge(from, '\n', '\n', line);
  dfa.Edge(from, ' ', ' ', after);
  dfa.states[line].calls.push_back({indent, kPlain, after});
  return after;
}

absl::StatusOr<Dfa> JsonRules::ArrayDfa(const std::vector<int32_t>& prefix,
                                        std::optional<int32_t> rest, CountRange length) {
  const int n = static_cast<int>(prefix.size());
  if (!rest.has_value()) length.most = std::min(length.most, n);
  Dfa dfa;
  if (length.least > length.most) {
    dfa.Add();  // accepts nothing
    return dfa;
  }
  const bool counts = rest.has_value() && (length.least > n || length.most <= kMaxCount);
  dfa.least = counts ? std::max(0, length.least - n) : 0;
  dfa.most = counts && length.most <= kMaxCount ? std::max(0, length.most - n) : kMaxCount + 1;
  const uint8_t body = counts ? kBelowMost : kPlain, count = counts ? kCounts : kPlain;
  const uint8_t leave = counts ? kFromLeast : kPlain, plain = kPlain;
  const int open = dfa.Add(), done = dfa.Add(true);
  int at = dfa.Add();
  dfa.Edge(open, '[', '[', at);
  // Position i stands behind i items: the next is item i, or the end.
  for (int i = 0;; ++i) {
    const bool is_loop = i >= n;
    LK_ASSIGN_OR_RETURN(const int spaced, AddGap(dfa, at));
    const bool takes = is_loop ? rest.has_value() : i < length.most;
    int after = -1, ready = -1, ready_spaced = -1;
    // Behind the prefix the same position comes after every item.
    if (takes) after = is_loop && i > 0 ? at : dfa.Add();
    if (takes && i > 0) {
      ready = dfa.Add();
      LK_ASSIGN_OR_RETURN(ready_spaced, AddGap(dfa, ready));
    }
    const int32_t rule = !takes ? -1 : is_loop ? *rest : prefix[i];
    for (const int from : {at, spaced}) {
      if (takes && i > 0) dfa.Edge(from, ',', ',', ready, is_loop ? body : plain);
      if (takes && i == 0) {
        const auto flags = static_cast<uint8_t>(body | count);
        dfa.states[from].calls.push_back({rule, is_loop ? flags : plain, after});
      }
      if (is_loop || i >= length.least) dfa.Edge(from, ']', ']', done, is_loop ? leave : plain);
    }
    if (takes && i > 0) {
      for (const int from : {ready, ready_spaced}) {
        dfa.states[from].calls.push_back({rule, is_loop ? count : plain, after});
      }
    }
    if (!takes || (is_loop && i > 0)) break;
    at = after;
  }
  LK_RETURN_IF_ERROR(budget_.ChargeStates(static_cast<int64_t>(dfa.states.size())));
  return dfa;
}

}  // namespace lowkey::grammar
