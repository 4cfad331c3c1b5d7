#include "tokenizer/chat/builtins/value_tests.h"

#include "absl/container/flat_hash_map.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/filters.h"
#include "tokenizer/chat/builtins/text_functions.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<bool>;

// Tests of what a value is, which take nothing else.
template <bool (*is_so)(const Value&)>
Result Simple(const Value& input, const Arguments& arguments, Arena&) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  return is_so(input);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.Is<bool>(); }
bool IsTrueItself(const Value& value) { return value.AsExactly<bool>().value_or(false); }
bool IsFalseItself(const Value& value) { return !value.AsExactly<bool>().value_or(true); }
bool IsString(const Value& value) { return value.AsText() != nullptr; }
bool IsNumber(const Value& value) { return value.AsNumber().has_value(); }
bool IsInteger(const Value& value) { return value.Is<int64_t>(); }
bool IsFloat(const Value& value) { return value.Is<double>(); }
bool IsMapping(const Value& value) { return value.AsDict() != nullptr; }
bool IsSequence(const Value& value) {
  return IsString(value) || value.AsList() != nullptr || IsMapping(value) || value.is_undefined();
}
bool IsIterable(const Value& value) { return IsSequence(value) || value.AsLoop() != nullptr; }
bool IsCallable(const Value& value) {
  return value.AsMacro() != nullptr || value.AsMethod() != nullptr || value.Is<Function>();
}

absl::StatusOr<int64_t> Remainder(const Value& input, const Value& divisor, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Value remainder, Calculate(Arithmetic::kModulo, input, divisor, arena));
  return remainder.AsInt().value_or(remainder.AsNumber() == 0.0   ? 0
                                    : remainder.AsNumber() == 1.0 ? 1
                                                                  : -1);
}

template <int64_t wanted>
Result HasParity(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_ASSIGN_OR_RETURN(const int64_t remainder, Remainder(input, Value(int64_t{2}), arena));
  return remainder == wanted;
}

Result IsDivisible(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"num"}, 1));
  LK_ASSIGN_OR_RETURN(const int64_t remainder, Remainder(input, bound[0], arena));
  return remainder == 0;
}

template <bool wanted>
Result IsEqual(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"other"}, 1));
  LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(input, bound[0], arena));
  return equal == wanted;
}

template <bool (*is_so)(int)>
Result IsOrdered(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"other"}, 1));
  LK_ASSIGN_OR_RETURN(const int order, Compare(input, bound[0], arena));
  return is_so(order);
}

bool IsLess(int order) { return order < 0; }
bool IsAtMost(int order) { return order <= 0; }
bool IsMore(int order) { return order > 0; }
bool IsAtLeast(int order) { return order >= 0; }

Result IsIn(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"seq"}, 1));
  return Contains(bound[0], input, arena);
}

Result IsSameAs(const Value& input, const Arguments& arguments, Arena&) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"other"}, 1));
  return input.IsSame(bound[0]);
}

template <Case wanted>
Result HasCase(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  const Text* text = input.AsText();
  if (text == nullptr) return false;
  LK_RETURN_IF_ERROR(arena.ChargeBytes(2 * text->size()));
  constexpr Case kOther = wanted == Case::kUpper ? Case::kLower : Case::kUpper;
  return WithCase(*text, wanted).bytes() == text->bytes() &&
         WithCase(*text, kOther).bytes() != text->bytes();
}

template <bool is_filter>
Result IsKnown(const Value& input, const Arguments& arguments, Arena&) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  const Text* name = input.AsText();
  if (name == nullptr) return false;
  return is_filter ? FindFilter(name->bytes()) != nullptr : FindTest(name->bytes()) != nullptr;
}

}  // namespace

ValueTest FindTest(std::string_view name) {
  static const auto* const tests = new absl::flat_hash_map<std::string_view, ValueTest>{
      {"boolean", Simple<IsBoolean>},
      {"callable", Simple<IsCallable>},
      {"defined", Simple<IsDefined>},
      {"divisibleby", IsDivisible},
      {"eq", IsEqual<true>},
      {"equalto", IsEqual<true>},
      {"==", IsEqual<true>},
      {"even", HasParity<0>},
      {"false", Simple<IsFalseItself>},
      {"filter", IsKnown<true>},
      {"float", Simple<IsFloat>},
      {"ge", IsOrdered<IsAtLeast>},
      {">=", IsOrdered<IsAtLeast>},
      {"greaterthan", IsOrdered<IsMore>},
      {"gt", IsOrdered<IsMore>},
      {">", IsOrdered<IsMore>},
      {"in", IsIn},
      {"integer", Simple<IsInteger>},
      {"iterable", Simple<IsIterable>},
      {"le", IsOrdered<IsAtMost>},
      {"<=", IsOrdered<IsAtMost>},
      {"lessthan", IsOrdered<IsLess>},
      {"lower", HasCase<Case::kLower>},
      {"lt", IsOrdered<IsLess>},
      {"<", IsOrdered<IsLess>},
      {"mapping", Simple<IsMapping>},
      {"ne", IsEqual<false>},
      {"!=", IsEqual<false>},
      {"none", Simple<IsNone>},
      {"number", Simple<IsNumber>},
      {"odd", HasParity<1>},
      {"sameas", IsSameAs},
      {"sequence", Simple<IsSequence>},
      {"string", Simple<IsString>},
      {"test", IsKnown<false>},
      {"true", Simple<IsTrueItself>},
      {"undefined", Simple<IsUndefined>},
      {"upper", HasCase<Case::kUpper>},
  };
  const auto it = tests->find(name);
  return it == tests->end() ? nullptr : it->second;
}

}  // namespace lowkey::jinja
