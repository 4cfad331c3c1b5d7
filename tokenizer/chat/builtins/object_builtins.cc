// Attributes, the methods of dicts, lists and loops, and the functions.
#include <algorithm>
#include <array>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Kind = Builtin::Kind;
using Result = absl::StatusOr<Value>;

Value LoopAttribute(const Loop& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index0);
  const auto n = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(n - index);
  if (name == "revindex0") return Value(n - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(int64_t{loop.depth});
  if (name == "depth0") return Value(int64_t{loop.depth} - 1);
  if (name == "previtem" && index > 0) return (*loop.items)[loop.index0 - 1];
  if (name == "nextitem" && index + 1 < n) return (*loop.items)[loop.index0 + 1];
  return Value();
}

// Methods that Python has and templates may not call.
constexpr std::string_view kUnsupportedTextMethods[] = {
    "casefold",   "center",   "encode",    "expandtabs",   "format",    "format_map",
    "index",      "isascii",  "isdecimal", "isidentifier", "isnumeric", "isprintable",
    "istitle",    "ljust",    "maketrans", "partition",    "rindex",    "rjust",
    "rpartition", "swapcase", "translate", "zfill"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

// Refuses the name of a method that templates may not call.
absl::Status CheckIsNoMethod(const Value& value, std::string_view name) {
  absl::Span<const std::string_view> methods;
  if (value.AsText() != nullptr) methods = kUnsupportedTextMethods;
  if (value.AsDict() != nullptr) methods = kDictChanges;
  // A tuple has none of the methods that change a list.
  if (value.AsList() != nullptr && !value.AsList()->is_tuple) methods = kListChanges;
  if (std::find(methods.begin(), methods.end(), name) == methods.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(value.TypeName()), ".", std::string(name),
                   value.AsText() != nullptr ? ": method not supported"
                                             : ": refused, a template may not change it"));
}

// Returns a method or an attribute; undefined when there is none.
Result FindAttribute(const Value& value, const Text& name, Arena& arena) {
  if (const Namespace* space = value.AsNamespace()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(name.size()));
    const auto it = space->attributes.find(name.bytes());
    return it == space->attributes.end() ? Value() : it->second;
  }
  const Builtin* method = nullptr;
  if (value.AsText() != nullptr) method = FindBuiltin(Kind::kTextMethod, name.bytes());
  if (value.AsDict() != nullptr) method = FindBuiltin(Kind::kDictMethod, name.bytes());
  if (value.AsList() != nullptr) method = FindBuiltin(Kind::kListMethod, name.bytes());
  if (value.AsLoop() != nullptr) method = FindBuiltin(Kind::kLoopMethod, name.bytes());
  if (method != nullptr) return arena.MakeMethod(value, method);
  LK_RETURN_IF_ERROR(CheckIsNoMethod(value, name.bytes()));
  return value.AsLoop() == nullptr ? Value() : LoopAttribute(*value.AsLoop(), name.bytes());
}

Result DictGet(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text* key = bound[0].AsText();
  if (key != nullptr) LK_RETURN_IF_ERROR(arena.ChargeBytes(key->size()));
  const Value* found = key == nullptr ? nullptr : self.AsDict()->Find(key->bytes());
  if (found != nullptr) return *found;
  return bound.given().positional.size() + bound.given().named.size() > 1 ? bound[1]
                                                                          : Value(None());
}

enum class Part { kKey, kValue, kPair };

template <Part part>
Result DictParts(const Value& self, const BoundArguments&, Arena& arena) {
  std::vector<Value> items;
  for (const Dict::Entry& entry : self.AsDict()->entries()) {
    if (part == Part::kPair) {
      LK_ASSIGN_OR_RETURN(items.emplace_back(), arena.MakeTuple({Value(entry.key), entry.value}));
    } else {
      LK_RETURN_IF_ERROR(arena.ChargeBytes(sizeof(Value)));
      items.push_back(part == Part::kKey ? Value(entry.key) : entry.value);
    }
  }
  return arena.MakeList(std::move(items));
}

// Lists and dicts are immutable, so that a copy is the same.
Result Copy(const Value& self, const BoundArguments&, Arena&) { return self; }

template <bool is_index>
Result FindItems(const Value& self, const BoundArguments& bound, Arena& arena) {
  const std::vector<Value>& items = self.AsList()->items;
  int64_t n_equal = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(items[i], bound[0], arena));
    if (equal && is_index) return Value(static_cast<int64_t>(i));
    n_equal += equal ? 1 : 0;
  }
  if (is_index) return absl::InvalidArgumentError("list.index: no such item");
  return Value(n_equal);
}

Result LoopCycle(const Value& self, const BoundArguments& bound, Arena&) {
  if (bound.given().positional.empty()) {
    return absl::InvalidArgumentError("loop.cycle: no items, expected 1 or more");
  }
  return bound.given().positional[self.AsLoop()->index0 % bound.given().positional.size()];
}

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox has the same
constexpr size_t kMaxTimeFormatBytes = 256;

Result Range(const Value&, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> first, bound.Int(0));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> second, bound.Int(1));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> third, bound.Int(2));
  const int64_t begin = second.has_value() ? first.value_or(0) : 0;
  const int64_t end = second.has_value() ? *second : first.value_or(0);
  const int64_t step = third.value_or(1);
  if (step == 0) return absl::InvalidArgumentError("argument step: 0, expected another");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return absl::InvalidArgumentError(
          absl::StrCat("range: over ", kMaxRange, " items, expected at most that"));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return arena.MakeList(std::move(items));
}

// The one positional argument of dict() and namespace(), and the named ones, in this order.
absl::StatusOr<Dict> GatherAttributes(const Arguments& arguments, Arena& arena) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError("expected at most one argument without a name");
  }
  if (!arguments.positional.empty()) {
    const Dict* from = arguments.positional[0].AsDict();
    if (from == nullptr) return absl::InvalidArgumentError("expected a dict");
    LK_RETURN_IF_ERROR(arena.ChargeBytes(64 * from->entries().size()));
    for (const Dict::Entry& entry : from->entries()) dict.Set(entry.key, entry.value);
  }
  for (const auto& [name, value] : arguments.named) {
    LK_ASSIGN_OR_RETURN(const Value key, arena.MakeText(std::string(name)));
    dict.Set(key.AsText(), value);
  }
  return dict;
}

Result MakeNamespace(const Value&, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Dict attributes, GatherAttributes(bound.given(), arena));
  LK_ASSIGN_OR_RETURN(Namespace * space, arena.MakeNamespace());
  for (const Dict::Entry& entry : attributes.entries()) {
    if (entry.key->bytes().starts_with('_')) {
      return absl::InvalidArgumentError(absl::StrCat("namespace attribute ", entry.key->bytes(),
                                                     ": refused, it begins with an underscore"));
    }
    space->attributes[entry.key->bytes()] = entry.value;
  }
  return Value(space);
}

Result MakeDict(const Value&, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(Dict dict, GatherAttributes(bound.given(), arena));
  return arena.MakeDict(std::move(dict));
}

Result RaiseException(const Value&, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text message, ToText(bound[0], arena));
  // The message is cut: the whole of it could be a megabyte of somebody's text.
  constexpr size_t kMaxShownBytes = 1024;
  size_t n_bytes = std::min(message.size(), kMaxShownBytes);
  while (n_bytes < message.size() && (message.bytes()[n_bytes] & 0xC0) == 0x80) --n_bytes;
  return absl::InvalidArgumentError(message.bytes().substr(0, n_bytes));
}

// Refuses all but plain conversions: strftime would obey a width such as %99999d.
absl::Status CheckTimeFormat(std::string_view format) {
  if (format.size() > kMaxTimeFormatBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: ", format.size(), " bytes, expected at most ", kMaxTimeFormatBytes));
  }
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    ++i;
    if (i < format.size() && format[i] == '-') ++i;
    const bool is_known =
        i < format.size() &&
        (absl::ascii_isalpha(static_cast<unsigned char>(format[i])) || format[i] == '%');
    if (!is_known || std::string_view("EOZz").find(format[i]) != std::string_view::npos) {
      return absl::InvalidArgumentError("format: not supported after %, expected a letter");
    }
  }
  return absl::OkStatus();
}

Result ShowTime(const Value&, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text* format, bound.String(0));
  if (format == nullptr) return absl::InvalidArgumentError("format: expected str");
  LK_RETURN_IF_ERROR(CheckTimeFormat(format->bytes()));
  if (format->size() == 0) return arena.MakeText(std::string());
  const std::tm time =
      absl::ToTM(arena.clock().now, arena.clock().zone);  // its zone is not set: no %Z
  std::array<char, 8192> shown;
  // No conversion gives more than some thirty bytes.
  const size_t n = std::strftime(shown.data(), shown.size(), format->bytes().c_str(), &time);
  return arena.MakeText(std::string(shown.data(), n));
}

constexpr Builtin kObjectBuiltins[] = {
    {Kind::kFunction, "dict", MakeDict, {kAnyArguments}},
    {Kind::kFunction, "namespace", MakeNamespace, {kAnyArguments}},
    {Kind::kFunction, "raise_exception", RaiseException, {"message"}, 1},
    {Kind::kFunction, "range", Range, {"start", "stop", "step"}, 1},
    {Kind::kFunction, "strftime_now", ShowTime, {"format"}, 1},
    {Kind::kDictMethod, "copy", Copy},
    {Kind::kDictMethod, "get", DictGet, {"key", "default"}, 1},
    {Kind::kDictMethod, "items", DictParts<Part::kPair>},
    {Kind::kDictMethod, "keys", DictParts<Part::kKey>},
    {Kind::kDictMethod, "values", DictParts<Part::kValue>},
    {Kind::kListMethod, "copy", Copy},
    {Kind::kListMethod, "count", FindItems<false>, {"value"}, 1},
    {Kind::kListMethod, "index", FindItems<true>, {"value"}, 1},
    {Kind::kLoopMethod, "cycle", LoopCycle, {kAnyArguments}},
};

}  // namespace

absl::Span<const Builtin> ObjectBuiltins() { return kObjectBuiltins; }

absl::Status UndefinedError(const Value& value) {
  const std::optional<Undefined> undefined = value.AsExactly<Undefined>();
  if (!undefined.has_value() || undefined->name == nullptr) {
    return absl::InvalidArgumentError("the value is undefined");
  }
  return absl::InvalidArgumentError(absl::StrCat("'", Shown(*undefined->name), "' is undefined"));
}

absl::StatusOr<Value> GetAttribute(const Value& value, const Text& name, Arena& arena) {
  if (value.is_undefined()) return UndefinedError(value);
  LK_ASSIGN_OR_RETURN(const Value found, FindAttribute(value, name, arena));
  if (!found.is_undefined()) return found;
  LK_ASSIGN_OR_RETURN(const Value item, GetItem(value, Value(&name), arena));
  return item.is_undefined() ? Value(Undefined{&name.bytes()}) : item;
}

absl::StatusOr<Value> GetSubscript(const Value& value, const Value& key, Arena& arena) {
  if (value.is_undefined()) return UndefinedError(value);
  LK_ASSIGN_OR_RETURN(const Value item, GetItem(value, key, arena));
  const Text* name = key.AsText();
  if (!item.is_undefined() || name == nullptr) return item;
  LK_ASSIGN_OR_RETURN(const Value found, FindAttribute(value, *name, arena));
  return found.is_undefined() ? Value(Undefined{&name->bytes()}) : found;
}

}  // namespace lowkey::jinja
