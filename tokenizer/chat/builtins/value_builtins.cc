// Tests, filters that give a number, and `default`.
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Tests of what a value is, which take nothing else.
template <bool (*is_so)(const Value&)>
Result Simple(const Value& self, const BoundArguments&, Arena&) {
  return Value(is_so(self));
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
  return value.AsMacro() != nullptr || value.AsMethod() != nullptr || value.AsFunction() != nullptr;
}

absl::StatusOr<int64_t> Remainder(const Value& input, const Value& divisor, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Value remainder, Calculate(Arithmetic::kModulo, input, divisor, arena));
  return remainder.AsInt().value_or(remainder.AsNumber() == 0.0   ? 0
                                    : remainder.AsNumber() == 1.0 ? 1
                                                                  : -1);
}

template <int64_t wanted>
Result HasParity(const Value& self, const BoundArguments&, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const int64_t remainder, Remainder(self, Value(int64_t{2}), arena));
  return Value(remainder == wanted);
}

Result IsDivisible(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const int64_t remainder, Remainder(self, bound[0], arena));
  return Value(remainder == 0);
}

template <Comparison comparison>
Result Compares(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const bool holds, Holds(comparison, self, bound[0], arena));
  return Value(holds);
}

Result IsSameAs(const Value& self, const BoundArguments& bound, Arena&) {
  return Value(self.IsSame(bound[0]));
}

template <Case wanted>
Result HasCase(const Value& self, const BoundArguments&, Arena& arena) {
  const Text* text = self.AsText();
  if (text == nullptr) return Value(false);
  LK_RETURN_IF_ERROR(arena.ChargeBytes(2 * text->size()));
  constexpr Case kOther = wanted == Case::kUpper ? Case::kLower : Case::kUpper;
  return Value(WithCase(*text, wanted).bytes() == text->bytes() &&
               WithCase(*text, kOther).bytes() != text->bytes());
}

template <Builtin::Kind kind>
Result IsKnown(const Value& self, const BoundArguments&, Arena&) {
  const Text* name = self.AsText();
  if (name == nullptr) return Value(false);
  return Value(FindBuiltin(kind, name->bytes()) != nullptr);
}

constexpr double kPast64Bits = 9223372036854775808.0;

std::optional<Value> Truncated(double number) {
  if (!(std::abs(number) < kPast64Bits)) return std::nullopt;
  return Value(static_cast<int64_t>(number));
}

// Nobody means a longer text as a number.
constexpr size_t kMaxNumberBytes = 400;

std::optional<double> ParseNumber(const Text& text) {
  double number = 0;
  if (text.size() > kMaxNumberBytes || !absl::SimpleAtod(text.bytes(), &number))
    return std::nullopt;
  return number;
}

Result Int(const Value& self, const BoundArguments& bound, Arena&) {
  const Value otherwise = bound.Has(0) ? bound[0] : Value(int64_t{0});
  if (const std::optional<int64_t> integer = self.AsInt()) return Value(*integer);
  if (const std::optional<double> number = self.AsNumber()) {
    return Truncated(*number).value_or(otherwise);
  }
  if (self.AsText() == nullptr || self.AsText()->size() > kMaxNumberBytes) return otherwise;
  int64_t integer = 0;
  if (absl::SimpleAtoi(self.AsText()->bytes(), &integer)) return Value(integer);
  const std::optional<double> number = ParseNumber(*self.AsText());
  return number.has_value() ? Truncated(*number).value_or(otherwise) : otherwise;
}

Result Float(const Value& self, const BoundArguments& bound, Arena&) {
  const Value otherwise = bound.Has(0) ? bound[0] : Value(0.0);
  if (const std::optional<double> number = self.AsNumber()) return Value(*number);
  if (self.AsText() == nullptr) return otherwise;
  const std::optional<double> number = ParseNumber(*self.AsText());
  return number.has_value() ? Value(*number) : otherwise;
}

Result Abs(const Value& self, const BoundArguments&, Arena&) {
  const std::optional<double> number = self.AsNumber();
  if (!number.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(self.TypeName()), ", expected a number"));
  }
  if (self.Is<double>()) return Value(std::abs(*number));
  return *number < 0 ? Negate(self) : Value(*self.AsInt());
}

Result Round(const Value& self, const BoundArguments& bound, Arena&) {
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> precision, bound.Int(0));
  LK_ASSIGN_OR_RETURN(const Text* method, bound.String(1));
  const int64_t n_decimals = precision.value_or(0);
  const std::optional<double> number = self.AsNumber();
  if (!number.has_value() || n_decimals < 0 || n_decimals > 15) {
    return absl::InvalidArgumentError("expected a number, and a precision in 0..15");
  }
  if (method == nullptr || method->bytes() == "common") {
    if (!self.Is<double>()) return Value(*self.AsInt());
    // Python rounds the exact value, half to even.
    double rounded = 0;
    (void)absl::SimpleAtod(absl::StrFormat("%.*f", static_cast<int>(n_decimals), *number),
                           &rounded);
    return Value(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(n_decimals));
  if (method->bytes() == "floor") return Value(std::floor(*number * scale) / scale);
  if (method->bytes() == "ceil") return Value(std::ceil(*number * scale) / scale);
  return absl::InvalidArgumentError("argument method: expected common, floor or ceil");
}

Result Default(const Value& self, const BoundArguments& bound, Arena& arena) {
  if (!self.is_undefined() && (self.IsTrue() || !bound.IsTrue(1))) return self;
  return bound.given().positional.empty() && bound.given().named.empty()
             ? arena.MakeText(std::string())
             : bound[0];
}

using Kind = Builtin::Kind;

constexpr Builtin kValueBuiltins[] = {
    {Kind::kFilter, "abs", Abs},
    {Kind::kFilter, "d", Default, {"default_value", "boolean"}},
    {Kind::kFilter, "default", Default, {"default_value", "boolean"}},
    {Kind::kFilter, "float", Float, {"default"}},
    {Kind::kFilter, "int", Int, {"default"}},
    {Kind::kFilter, "round", Round, {"precision", "method"}},
    {Kind::kTest, "boolean", Simple<IsBoolean>},
    {Kind::kTest, "callable", Simple<IsCallable>},
    {Kind::kTest, "defined", Simple<IsDefined>},
    {Kind::kTest, "divisibleby", IsDivisible, {"num"}, 1},
    {Kind::kTest, "eq", Compares<Comparison::kEqual>, {"other"}, 1},
    {Kind::kTest, "equalto", Compares<Comparison::kEqual>, {"other"}, 1},
    {Kind::kTest, "==", Compares<Comparison::kEqual>, {"other"}, 1},
    {Kind::kTest, "even", HasParity<0>},
    {Kind::kTest, "false", Simple<IsFalseItself>},
    {Kind::kTest, "filter", IsKnown<Kind::kFilter>},
    {Kind::kTest, "float", Simple<IsFloat>},
    {Kind::kTest, "ge", Compares<Comparison::kAtLeast>, {"other"}, 1},
    {Kind::kTest, ">=", Compares<Comparison::kAtLeast>, {"other"}, 1},
    {Kind::kTest, "greaterthan", Compares<Comparison::kMore>, {"other"}, 1},
    {Kind::kTest, "gt", Compares<Comparison::kMore>, {"other"}, 1},
    {Kind::kTest, ">", Compares<Comparison::kMore>, {"other"}, 1},
    {Kind::kTest, "in", Compares<Comparison::kIn>, {"seq"}, 1},
    {Kind::kTest, "integer", Simple<IsInteger>},
    {Kind::kTest, "iterable", Simple<IsIterable>},
    {Kind::kTest, "le", Compares<Comparison::kAtMost>, {"other"}, 1},
    {Kind::kTest, "<=", Compares<Comparison::kAtMost>, {"other"}, 1},
    {Kind::kTest, "lessthan", Compares<Comparison::kLess>, {"other"}, 1},
    {Kind::kTest, "lower", HasCase<Case::kLower>},
    {Kind::kTest, "lt", Compares<Comparison::kLess>, {"other"}, 1},
    {Kind::kTest, "<", Compares<Comparison::kLess>, {"other"}, 1},
    {Kind::kTest, "mapping", Simple<IsMapping>},
    {Kind::kTest, "ne", Compares<Comparison::kUnequal>, {"other"}, 1},
    {Kind::kTest, "!=", Compares<Comparison::kUnequal>, {"other"}, 1},
    {Kind::kTest, "none", Simple<IsNone>},
    {Kind::kTest, "number", Simple<IsNumber>},
    {Kind::kTest, "odd", HasParity<1>},
    {Kind::kTest, "sameas", IsSameAs, {"other"}, 1},
    {Kind::kTest, "sequence", Simple<IsSequence>},
    {Kind::kTest, "string", Simple<IsString>},
    {Kind::kTest, "test", IsKnown<Kind::kTest>},
    {Kind::kTest, "true", Simple<IsTrueItself>},
    {Kind::kTest, "undefined", Simple<IsUndefined>},
    {Kind::kTest, "upper", HasCase<Case::kUpper>},
};

}  // namespace

absl::Span<const Builtin> ValueBuiltins() { return kValueBuiltins; }

}  // namespace lowkey::jinja
