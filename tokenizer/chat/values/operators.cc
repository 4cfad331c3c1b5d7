#include "tokenizer/chat/values/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

absl::Status NoMeaning(std::string_view sign, const Value& a, const Value& b) {
  return absl::InvalidArgumentError(absl::StrCat("operator ", std::string(sign), ": ",
                                                 std::string(a.TypeName()), " and ",
                                                 std::string(b.TypeName()), " do not go together"));
}

absl::Status IntegerOverflow() {
  return absl::InvalidArgumentError("integer over 64 bits, which is not supported");
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  // Any other base passes 64 bits before.
  if (exponent > 64 && base != 0 && base != 1 && base != -1) return IntegerOverflow();
  if (exponent > 64) exponent = 64 + exponent % 2;
  int64_t power = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(power, base, &power)) return IntegerOverflow();
  }
  return Value(power);
}

absl::StatusOr<Value> CalculateIntegers(Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      return __builtin_add_overflow(a, b, &result) ? absl::StatusOr<Value>(IntegerOverflow())
                                                   : Value(result);
    case Arithmetic::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? absl::StatusOr<Value>(IntegerOverflow())
                                                   : Value(result);
    case Arithmetic::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? absl::StatusOr<Value>(IntegerOverflow())
                                                   : Value(result);
    case Arithmetic::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == Arithmetic::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  // The least integer has no quotient of 64 bits; its remainder is 0, but the processor traps.
  if (b == -1) {
    if (op == Arithmetic::kModulo) return Value(int64_t{0});
    return CalculateIntegers(Arithmetic::kSubtract, 0, a);
  }
  const int64_t quotient = FloorDivide(a, b);
  return Value(op == Arithmetic::kFloorDivide ? quotient : a - quotient * b);
}

absl::StatusOr<Value> CalculateFloats(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd:
      return Value(a + b);
    case Arithmetic::kSubtract:
      return Value(a - b);
    case Arithmetic::kMultiply:
      return Value(a * b);
    case Arithmetic::kPower:
      return Value(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == Arithmetic::kDivide) return Value(a / b);
  if (op == Arithmetic::kFloorDivide) return Value(std::floor(a / b));
  return Value(a - std::floor(a / b) * b);
}

absl::StatusOr<Value> Join(const Value& a, const Value& b, Arena& arena) {
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(a.AsText()->held_bytes() + b.AsText()->held_bytes()));
    Text joined = *a.AsText();
    joined.Append(*b.AsText());
    return arena.MakeText(std::move(joined));
  }
  const List *first = a.AsList(), *second = b.AsList();
  if (first == nullptr || second == nullptr || first->is_tuple != second->is_tuple) {
    return NoMeaning("+", a, b);
  }
  LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes * (first->items.size() + second->items.size())));
  std::vector<Value> items = first->items;
  items.insert(items.end(), second->items.begin(), second->items.end());
  return arena.MakeSequence({std::move(items), first->is_tuple});
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t n, Arena& arena) {
  const Text* text = value.AsText();
  const List* list = value.AsList();
  const size_t n_times = n <= 0 ? 0 : static_cast<size_t>(n);
  const size_t n_bytes = text != nullptr ? text->held_bytes() : kVisitBytes * list->items.size();
  if (n_bytes > 0 && n_times > arena.limits().max_work_bytes / n_bytes) {
    return arena.ChargeBytes(std::numeric_limits<size_t>::max());
  }
  LK_RETURN_IF_ERROR(arena.ChargeBytes(n_bytes * n_times));
  // Repeating nothing takes no rounds, however large n_times is.
  const size_t n_rounds = n_bytes == 0 ? 0 : n_times;
  if (text != nullptr) {
    Text repeated;
    for (size_t i = 0; i < n_rounds; ++i) repeated.Append(*text);
    return arena.MakeText(std::move(repeated));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < n_rounds; ++i) {
    items.insert(items.end(), list->items.begin(), list->items.end());
  }
  return arena.MakeSequence({std::move(items), list->is_tuple});
}

// Returns the offsets at which the characters of `text` begin, and its size.
std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += CharacterBytes(text, at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// Python's rules for the indices that a slice visits.
std::vector<size_t> SliceIndices(const SliceBounds& bounds, int64_t n) {
  const int64_t step = bounds.step.value_or(1);
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto clamped = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound.has_value()) return otherwise;
    return std::clamp(*bound < 0 ? std::max<int64_t>(*bound, -n - 1) + n : *bound, low, high);
  };
  const int64_t begin = clamped(bounds.begin, step > 0 ? low : high);
  const int64_t end = clamped(bounds.end, step > 0 ? high : low);
  std::vector<size_t> indices;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    indices.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return indices;
}

absl::StatusOr<bool> AreListsEqual(const List& a, const List& b, Arena& arena) {
  if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(a.items[i], b.items[i], arena));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> AreDictsEqual(const Dict& a, const Dict& b, Arena& arena) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.Find(entry.key->bytes());
    if (other == nullptr) return false;
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(entry.value, *other, arena));
    if (!equal) return false;
  }
  return true;
}

// Returns the place among `n` items that an integer key names, from the end when negative.
std::optional<size_t> IndexOf(const Value& key, size_t n) {
  std::optional<int64_t> index = key.AsInt();
  if (!index.has_value()) return std::nullopt;
  if (*index < 0) *index += static_cast<int64_t>(n);
  if (*index < 0 || *index >= static_cast<int64_t>(n)) return std::nullopt;
  return static_cast<size_t>(*index);
}

}  // namespace

std::string Shown(std::string_view text) {
  constexpr size_t kMaxShownBytes = 128;
  size_t n_bytes = std::min(text.size(), kMaxShownBytes);
  while (n_bytes < text.size() && IsContinuation(text[n_bytes])) --n_bytes;
  return absl::StrCat(std::string(text.substr(0, n_bytes)), n_bytes < text.size() ? "..." : "");
}

std::string Quoted(std::string_view text) { return absl::StrCat("\"", Shown(text), "\""); }

absl::StatusOr<Value> Calculate(Arithmetic op, const Value& a, const Value& b, Arena& arena) {
  const std::optional<double> x = a.AsNumber(), y = b.AsNumber();
  if (x.has_value() && y.has_value()) {
    if (a.Is<double>() || b.Is<double>()) return CalculateFloats(op, *x, *y);
    return CalculateIntegers(op, *a.AsInt(), *b.AsInt());
  }
  if (op == Arithmetic::kAdd) return Join(a, b, arena);
  const auto is_repeatable = [](const Value& value) {
    return value.AsText() != nullptr || value.AsList() != nullptr;
  };
  if (op == Arithmetic::kMultiply && is_repeatable(a) && b.AsInt().has_value()) {
    return Repeat(a, *b.AsInt(), arena);
  }
  if (op == Arithmetic::kMultiply && is_repeatable(b) && a.AsInt().has_value()) {
    return Repeat(b, *a.AsInt(), arena);
  }
  return NoMeaning(kSigns[static_cast<size_t>(op)], a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.Is<double>()) return Value(-*value.AsNumber());
  const std::optional<int64_t> integer = value.AsInt();
  if (!integer.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("operator -: ", std::string(value.TypeName()), ", expected a number"));
  }
  return CalculateIntegers(Arithmetic::kSubtract, 0, *integer);
}

absl::StatusOr<bool> AreEqual(const Value& a, const Value& b, Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes));
  const std::optional<double> x = a.AsNumber(), y = b.AsNumber();
  if (x.has_value() && y.has_value()) {
    if (a.Is<double>() || b.Is<double>()) return *x == *y;
    return *a.AsInt() == *b.AsInt();
  }
  if (const Text* s = a.AsText(), *t = b.AsText(); s != nullptr && t != nullptr) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(std::min(s->size(), t->size())));
    return s->bytes() == t->bytes();
  }
  if (const List* s = a.AsList(), *t = b.AsList(); s != nullptr && t != nullptr) {
    return AreListsEqual(*s, *t, arena);
  }
  if (const Dict* s = a.AsDict(), *t = b.AsDict(); s != nullptr && t != nullptr) {
    return AreDictsEqual(*s, *t, arena);
  }
  return a.IsSame(b);
}

absl::StatusOr<int> Compare(const Value& a, const Value& b, Arena& arena) {
  const std::optional<double> x = a.AsNumber(), y = b.AsNumber();
  if (x.has_value() && y.has_value()) {
    if (a.Is<double>() || b.Is<double>()) return (*x > *y) - (*x < *y);
    return (*a.AsInt() > *b.AsInt()) - (*a.AsInt() < *b.AsInt());
  }
  if (a.AsText() == nullptr || b.AsText() == nullptr) return NoMeaning("<", a, b);
  LK_RETURN_IF_ERROR(
      arena.ChargeBytes(kVisitBytes + std::min(a.AsText()->size(), b.AsText()->size())));
  // The order of UTF-8 bytes is that of the code points.
  return a.AsText()->bytes().compare(b.AsText()->bytes());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Arena& arena) {
  if (container.is_undefined()) return false;
  if (const Text* text = container.AsText()) {
    if (item.AsText() == nullptr) return NoMeaning("in", item, container);
    // memmem is linear in both.
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes + text->size() + item.AsText()->size()));
    return memmem(text->bytes().data(), text->size(), item.AsText()->bytes().data(),
                  item.AsText()->size()) != nullptr;
  }
  if (const Dict* dict = container.AsDict()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes));
    if (item.AsText() == nullptr) return false;
    LK_RETURN_IF_ERROR(arena.ChargeBytes(item.AsText()->size()));
    return dict->Find(item.AsText()->bytes()) != nullptr;
  }
  if (container.AsList() == nullptr) return NoMeaning("in", item, container);
  for (const Value& candidate : container.AsList()->items) {
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(candidate, item, arena));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<bool> Holds(Comparison comparison, const Value& a, const Value& b, Arena& arena) {
  if (comparison == Comparison::kEqual || comparison == Comparison::kUnequal) {
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(a, b, arena));
    return equal == (comparison == Comparison::kEqual);
  }
  if (comparison == Comparison::kIn || comparison == Comparison::kNotIn) {
    LK_ASSIGN_OR_RETURN(const bool contains, Contains(b, a, arena));
    return contains == (comparison == Comparison::kIn);
  }
  LK_ASSIGN_OR_RETURN(const int order, Compare(a, b, arena));
  if (comparison == Comparison::kLess) return order < 0;
  if (comparison == Comparison::kAtMost) return order <= 0;
  return comparison == Comparison::kMore ? order > 0 : order >= 0;
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Arena& arena) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const List* list = value.AsList()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes * list->items.size()));
    return list->items;
  }
  if (const Dict* dict = value.AsDict()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes * dict->entries().size()));
    for (const Dict::Entry& entry : dict->entries()) items.emplace_back(entry.key);
    return items;
  }
  const Text* text = value.AsText();
  if (text == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(value.TypeName()), " cannot be looped over"));
  }
  for (size_t at = 0; at < text->size();) {
    const size_t n_bytes = CharacterBytes(text->bytes(), at);
    LK_ASSIGN_OR_RETURN(items.emplace_back(), arena.MakeText(text->Part(at, at + n_bytes)));
    at += n_bytes;
  }
  return items;
}

absl::StatusOr<int64_t> Length(const Value& value, Arena& arena) {
  if (value.is_undefined()) return 0;
  if (const List* list = value.AsList()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.AsDict()) return static_cast<int64_t>(dict->entries().size());
  if (const Text* text = value.AsText()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(text->size()));
    return static_cast<int64_t>(CountCharacters(text->bytes()));
  }
  return absl::InvalidArgumentError(absl::StrCat(std::string(value.TypeName()), " has no length"));
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key, Arena& arena) {
  if (const Dict* dict = value.AsDict()) {
    if (key.AsText() == nullptr) return Value();
    LK_RETURN_IF_ERROR(arena.ChargeBytes(key.AsText()->size()));
    const Value* found = dict->Find(key.AsText()->bytes());
    return found == nullptr ? Value() : *found;
  }
  if (const List* list = value.AsList()) {
    const std::optional<size_t> index = IndexOf(key, list->items.size());
    return index.has_value() ? list->items[*index] : Value();
  }
  const Text* text = value.AsText();
  if (text == nullptr) return Value();
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text->size()));
  const std::optional<size_t> index = IndexOf(key, CountCharacters(text->bytes()));
  if (!index.has_value()) return Value();
  size_t at = 0;
  for (size_t i = 0; i < *index; ++i) at += CharacterBytes(text->bytes(), at);
  return arena.MakeText(text->Part(at, at + CharacterBytes(text->bytes(), at)));
}

absl::StatusOr<Value> Slice(const Value& value, const SliceBounds& bounds, Arena& arena) {
  if (bounds.step.has_value() && *bounds.step == 0) {
    return absl::InvalidArgumentError("slice: step 0, expected another");
  }
  if (const List* list = value.AsList()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes * list->items.size()));
    std::vector<Value> items;
    for (size_t i : SliceIndices(bounds, static_cast<int64_t>(list->items.size()))) {
      items.push_back(list->items[i]);
    }
    return arena.MakeSequence({std::move(items), list->is_tuple});
  }
  const Text* text = value.AsText();
  if (text == nullptr) {
    if (value.is_undefined()) return arena.MakeList({});
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(value.TypeName()), " cannot be sliced"));
  }
  LK_RETURN_IF_ERROR(arena.ChargeBytes(kVisitBytes * text->size()));
  const std::vector<size_t> starts = CharacterStarts(text->bytes());
  Text slice;
  for (size_t i : SliceIndices(bounds, static_cast<int64_t>(starts.size()) - 1)) {
    slice.AppendPart(*text, starts[i], starts[i + 1]);
  }
  return arena.MakeText(std::move(slice));
}

}  // namespace lowkey::jinja
