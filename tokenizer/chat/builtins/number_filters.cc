// Filters that give a number, and `default`.
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/filters.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr double kPast64Bits = 9223372036854775808.0;

std::optional<Value> Truncated(double number) {
  if (!(std::abs(number) < kPast64Bits)) return std::nullopt;
  return Value(static_cast<int64_t>(number));
}

std::optional<double> ParseNumber(const Text& text) {
  double number = 0;
  // Longer ones are no number that anybody means.
  if (text.size() > 400 || !absl::SimpleAtod(text.bytes(), &number)) return std::nullopt;
  return number;
}

Result Int(const Value& input, const Arguments& arguments, Arena&) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"default"}));
  const Value otherwise = bound.Has(0) ? bound[0] : Value(int64_t{0});
  if (const std::optional<int64_t> integer = input.AsInt()) return Value(*integer);
  if (const std::optional<double> number = input.AsNumber()) {
    return Truncated(*number).value_or(otherwise);
  }
  if (input.AsText() == nullptr) return otherwise;
  int64_t integer = 0;
  if (absl::SimpleAtoi(input.AsText()->bytes(), &integer)) return Value(integer);
  const std::optional<double> number = ParseNumber(*input.AsText());
  return number.has_value() ? Truncated(*number).value_or(otherwise) : otherwise;
}

Result Float(const Value& input, const Arguments& arguments, Arena&) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"default"}));
  const Value otherwise = bound.Has(0) ? bound[0] : Value(0.0);
  if (const std::optional<double> number = input.AsNumber()) return Value(*number);
  if (input.AsText() == nullptr) return otherwise;
  const std::optional<double> number = ParseNumber(*input.AsText());
  return number.has_value() ? Value(*number) : otherwise;
}

Result Abs(const Value& input, const Arguments& arguments, Arena&) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  const std::optional<double> number = input.AsNumber();
  if (!number.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(input.TypeName()), ", expected a number"));
  }
  if (input.Is<double>()) return Value(std::abs(*number));
  return *number < 0 ? Negate(input) : Value(*input.AsInt());
}

Result Round(const Value& input, const Arguments& arguments, Arena&) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"precision", "method"}));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> precision, bound.Int(0));
  LK_ASSIGN_OR_RETURN(const Text* method, bound.String(1));
  const int64_t n_decimals = precision.value_or(0);
  const std::optional<double> number = input.AsNumber();
  if (!number.has_value() || n_decimals < 0 || n_decimals > 15) {
    return absl::InvalidArgumentError("expected a number, and a precision in 0..15");
  }
  if (method == nullptr || method->bytes() == "common") {
    if (!input.Is<double>()) return Value(*input.AsInt());
    // As Python: the exact value, half to even.
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

Result Default(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"default_value", "boolean"}));
  if (!input.is_undefined() && (input.IsTrue() || !bound.IsTrue(1))) return input;
  return arguments.positional.empty() && arguments.named.empty() ? arena.MakeText(std::string())
                                                                 : bound[0];
}

}  // namespace

void AddNumberFilters(FilterTable& table) {
  table["abs"] = Abs;
  table["d"] = Default;
  table["default"] = Default;
  table["float"] = Float;
  table["int"] = Int;
  table["round"] = Round;
}

}  // namespace lowkey::jinja
