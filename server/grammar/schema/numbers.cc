#include "server/grammar/schema/numbers.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::grammar {
namespace {

using Parts = std::vector<ExpressionPtr>;

ExpressionPtr Digit(char first, char last) {
  return Chars(CharSet(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
}
ExpressionPtr Digits(int min, int max) { return Repeat(Digit('0', '9'), min, max); }

// A number without sign: its digits before the point without leading zeros, and those after it
// without zeros at the end.
struct Magnitude {
  std::string integer = "0", fraction = {};
  bool is_zero() const { return integer == "0" && fraction.empty(); }
};

struct Decimal {
  bool is_negative = false;
  Magnitude magnitude = {};
};

// Reads what JSON spells. The exponent moves the point.
absl::StatusOr<Decimal> ParseDecimal(const std::string& text) {
  constexpr int kMostDigits = 400;
  Decimal decimal;
  std::string digits;
  int point = -1, exponent = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-' && i == 0) decimal.is_negative = true;
    if (c >= '0' && c <= '9') digits.push_back(c);
    if (c == '.') point = static_cast<int>(digits.size());
    if (c == 'e' || c == 'E') {
      exponent = std::atoi(text.c_str() + i + 1);
      break;
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  if (digits.size() > kMostDigits || std::abs(exponent) > kMostDigits) {
    return absl::InvalidArgumentError(
        absl::StrCat("a bound of over ", kMostDigits, " digits, expected fewer"));
  }
  point += exponent;
  std::string padded;
  for (; point < 1; ++point) padded.push_back('0');
  padded.append(digits);
  while (padded.size() < static_cast<size_t>(point)) padded.push_back('0');
  Magnitude& m = decimal.magnitude;
  m.integer = padded.substr(0, static_cast<size_t>(point));
  m.fraction = padded.substr(static_cast<size_t>(point));
  m.integer.erase(0, std::min(m.integer.find_first_not_of('0'), m.integer.size() - 1));
  m.fraction.erase(m.fraction.find_last_not_of('0') + 1);
  if (m.is_zero()) decimal.is_negative = false;
  return decimal;
}

ExpressionPtr AnyInteger() {
  return Choice({Text("0"), Sequence({Digit('1', '9'), Digits(0, kIntegerDigits - 1)})});
}
ExpressionPtr AnyFraction() { return Optional(Sequence({Text("."), Digits(1, kFractionDigits)})); }

// Integers of which the first digit that differs from `bound` is greater, or less, and longer, or
// shorter, ones.
ExpressionPtr IntegersBeside(const std::string& bound, bool greater) {
  const int n = static_cast<int>(bound.size());
  Parts choices;
  if (greater) {
    if (n < kIntegerDigits) {
      choices.push_back(Sequence({Digit('1', '9'), Digits(n, kIntegerDigits - 1)}));
    }
  } else if (n > 1) {
    choices.push_back(Text("0"));
    if (n > 2) choices.push_back(Sequence({Digit('1', '9'), Digits(0, n - 3)}));
    choices.push_back(Sequence({Digit('1', '9'), Digits(n - 2, n - 2)}));
  }
  if (n > kIntegerDigits) return greater ? Nothing() : AnyInteger();
  std::string head;
  for (int i = 0; i < n; head.push_back(bound[i]), ++i) {
    const char lowest = i == 0 && n > 1 ? '1' : '0';
    const char first = greater ? static_cast<char>(bound[i] + 1) : lowest;
    const char last = greater ? '9' : static_cast<char>(bound[i] - 1);
    if (first > last) continue;
    choices.push_back(Sequence({Text(head), Digit(first, last), Digits(n - i - 1, n - i - 1)}));
  }
  return Choice(std::move(choices));
}

// Fractions greater, or less, than 0.`bound`; the point included.
ExpressionPtr FractionsBeside(const std::string& bound, bool greater) {
  const int n = static_cast<int>(bound.size());
  Parts choices;
  if (!greater && n > 0) choices.push_back(Text(""));
  std::string head = ".";
  for (int i = 0; i < n; head.push_back(bound[i]), ++i) {
    const char first = greater ? static_cast<char>(bound[i] + 1) : '0';
    const char last = greater ? '9' : static_cast<char>(bound[i] - 1);
    if (!greater && i > 0) choices.push_back(Text(head));
    if (first > last) continue;
    choices.push_back(Sequence({Text(head), Digit(first, last), Digits(0, kFractionDigits)}));
  }
  if (greater) {
    choices.push_back(Sequence({Text("." + bound), Repeat(Text("0"), 0, kFractionDigits),
                                Digit('1', '9'), Digits(0, kFractionDigits)}));
  }
  return Choice(std::move(choices));
}

ExpressionPtr FractionsEqual(const std::string& bound) {
  if (bound.empty()) return Optional(Sequence({Text("."), Repeat(Text("0"), 1, kFractionDigits)}));
  return Sequence({Text("." + bound), Repeat(Text("0"), 0, kFractionDigits)});
}

// Magnitudes at least, or at most, `bound`.
ExpressionPtr MagnitudesBeside(const Magnitude& bound, bool greater, const NumberRange& range,
                               bool is_open) {
  if (range.is_integer) {
    Parts choices = {IntegersBeside(bound.integer, greater)};
    // Below 1.5 and at it lies 1; above it does not.
    const bool holds_integer = bound.fraction.empty() ? !is_open : !greater;
    if (holds_integer && static_cast<int>(bound.integer.size()) <= kIntegerDigits) {
      choices.push_back(Text(bound.integer));
    }
    return Choice(std::move(choices));
  }
  Parts choices = {Sequence({IntegersBeside(bound.integer, greater), AnyFraction()})};
  if (static_cast<int>(bound.integer.size()) <= kIntegerDigits) {
    choices.push_back(Sequence({Text(bound.integer), FractionsBeside(bound.fraction, greater)}));
    if (!is_open) {
      choices.push_back(Sequence({Text(bound.integer), FractionsEqual(bound.fraction)}));
    }
  }
  return Choice(std::move(choices));
}

ExpressionPtr AnyMagnitude(const NumberRange& range) {
  return range.is_integer ? AnyInteger() : Sequence({AnyInteger(), AnyFraction()});
}

// Numbers at least, or at most, `bound`.
absl::StatusOr<ExpressionPtr> NumbersBeside(const NumberBound& bound, bool greater,
                                            const NumberRange& range) {
  LK_ASSIGN_OR_RETURN(const Decimal decimal, ParseDecimal(bound.text));
  // Seen from zero the bound is the near end of the numbers, or the far end on its side.
  const bool is_near = decimal.is_negative != greater;
  const ExpressionPtr sign = Text("-");
  if (decimal.magnitude.is_zero() && !greater && bound.is_open) {
    return Sequence({sign, MagnitudesBeside(decimal.magnitude, true, range, true)});  // no "-0"
  }
  if (is_near && !(decimal.magnitude.is_zero() && !greater)) {
    ExpressionPtr beyond = MagnitudesBeside(decimal.magnitude, true, range, bound.is_open);
    if (greater) return beyond;
    return Sequence({sign, std::move(beyond)});
  }
  ExpressionPtr within = MagnitudesBeside(decimal.magnitude, false, range, bound.is_open);
  if (greater) return Choice({AnyMagnitude(range), Sequence({sign, std::move(within)})});
  return Choice({Sequence({sign, AnyMagnitude(range)}), std::move(within)});
}

}  // namespace

absl::StatusOr<ExpressionPtr> NumbersOf(const NumberRange& range, Budget& budget) {
  if (range.least.empty() && range.most.empty()) {
    if (range.is_integer) {
      return Choice({Text("0"), Sequence({Optional(Text("-")), Digit('1', '9'),
                                          Digits(0, kIntegerDigits - 1)})});
    }
    const ExpressionPtr exponent =
        Sequence({Chars(CharSet::Of("eE")), Optional(Chars(CharSet::Of("+-"))), Digits(1, 2)});
    return Sequence({Optional(Text("-")), AnyInteger(), AnyFraction(), Optional(exponent)});
  }
  // "-0" is no way to write an integer.
  ExpressionPtr all = range.is_integer
                          ? Choice({Text("0"), Sequence({Optional(Text("-")), Digit('1', '9'),
                                                         Digits(0, kIntegerDigits - 1)})})
                          : Sequence({Optional(Text("-")), AnyInteger(), AnyFraction()});
  LK_ASSIGN_OR_RETURN(Dfa numbers, ToDfa(*all, budget));
  for (const bool greater : {true, false}) {
    for (const NumberBound& bound : greater ? range.least : range.most) {
      LK_ASSIGN_OR_RETURN(const ExpressionPtr side, NumbersBeside(bound, greater, range));
      LK_ASSIGN_OR_RETURN(const Dfa side_dfa, ToDfa(*side, budget));
      LK_ASSIGN_OR_RETURN(numbers, Combine(numbers, side_dfa, Combination::kBoth, budget));
    }
  }
  return Automaton(std::move(numbers));
}

}  // namespace lowkey::grammar
