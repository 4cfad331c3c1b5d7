#include "tokenizer/chat/builtins/methods.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/text_methods.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kListMethods[] = {"count", "index", "copy"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};

template <size_t n>
std::string_view FindName(const std::string_view (&names)[n], std::string_view name) {
  const auto* it = std::find(names, names + n, name);
  return it == names + n ? std::string_view() : *it;
}

absl::Status Refused(const Value& value, std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(value.TypeName()), ".",
                                                 std::string(name),
                                                 ": refused, a template may not change it"));
}

// The method's name as a constant; empty: the type has none of that name.
absl::StatusOr<std::string_view> FindMethodName(const Value& value, std::string_view name) {
  if (value.AsText() != nullptr) {
    if (IsUnsupportedTextMethod(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("str.", std::string(name), ": method not supported"));
    }
    return FindTextMethod(name) == nullptr ? std::string_view() : name;
  }
  if (value.AsDict() != nullptr) {
    if (!FindName(kDictChanges, name).empty()) return Refused(value, name);
    return FindName(kDictMethods, name);
  }
  if (const List* list = value.AsList()) {
    if (!list->is_tuple && !FindName(kListChanges, name).empty()) return Refused(value, name);
    return FindName(kListMethods, name);
  }
  if (value.AsLoop() != nullptr && name == "cycle") return std::string_view("cycle");
  return std::string_view();
}

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

// A method or an attribute; undefined when there is none.
absl::StatusOr<Value> FindAttribute(const Value& value, const Text& name, Arena& arena) {
  if (const Namespace* space = value.AsNamespace()) {
    const auto it = space->attributes.find(name.bytes());
    return it == space->attributes.end() ? Value() : it->second;
  }
  LK_ASSIGN_OR_RETURN(const std::string_view method, FindMethodName(value, name.bytes()));
  if (!method.empty()) return arena.MakeMethod(value, method);
  if (const Loop* loop = value.AsLoop()) return LoopAttribute(*loop, name.bytes());
  return Value();
}

absl::StatusOr<Value> CallDictMethod(const Dict& dict, std::string_view name,
                                     const Arguments& arguments, Arena& arena) {
  if (name == "get") {
    LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                        BoundArguments::Bind(arguments, {"key", "default"}, 1));
    const Text* key = bound[0].AsText();
    const Value* found = key == nullptr ? nullptr : dict.Find(key->bytes());
    if (found != nullptr) return *found;
    return arguments.positional.size() + arguments.named.size() > 1 ? bound[1] : Value(None());
  }
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  if (name == "copy") return Value(&dict);
  std::vector<Value> items;
  for (const Dict::Entry& entry : dict.entries()) {
    if (name == "items") {
      LK_ASSIGN_OR_RETURN(const Value pair, arena.MakeTuple({Value(entry.key), entry.value}));
      items.push_back(pair);
    } else {
      items.push_back(name == "keys" ? Value(entry.key) : entry.value);
    }
  }
  return arena.MakeList(std::move(items));
}

absl::StatusOr<Value> CallListMethod(const List& list, std::string_view name,
                                     const Arguments& arguments, Arena& arena) {
  if (name == "copy") return Value(&list);
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"value"}, 1));
  int64_t n_equal = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(list.items[i], bound[0], arena));
    if (equal && name == "index") return Value(static_cast<int64_t>(i));
    n_equal += equal ? 1 : 0;
  }
  if (name == "index") return absl::InvalidArgumentError("list.index: no such item");
  return Value(n_equal);
}

}  // namespace

absl::Status UndefinedError(const Value& value) {
  const std::optional<Undefined> undefined = value.AsExactly<Undefined>();
  if (!undefined.has_value() || undefined->name == nullptr) {
    return absl::InvalidArgumentError("the value is undefined");
  }
  return absl::InvalidArgumentError(absl::StrCat("'", *undefined->name, "' is undefined"));
}

absl::StatusOr<Value> GetAttribute(const Value& value, const Text& name, Arena& arena) {
  if (value.is_undefined()) return UndefinedError(value);
  LK_ASSIGN_OR_RETURN(const Value found, FindAttribute(value, name, arena));
  if (!found.is_undefined()) return found;
  const Text* key = &name;
  LK_ASSIGN_OR_RETURN(const Value item, GetItem(value, Value(key), arena));
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

absl::StatusOr<Value> CallMethod(const Method& method, const Arguments& arguments, Arena& arena) {
  if (const Text* text = method.receiver.AsText()) {
    return FindTextMethod(method.name)(*text, arguments, arena);
  }
  if (const Dict* dict = method.receiver.AsDict()) {
    return CallDictMethod(*dict, method.name, arguments, arena);
  }
  if (const List* list = method.receiver.AsList()) {
    return CallListMethod(*list, method.name, arguments, arena);
  }
  const Loop* loop = method.receiver.AsLoop();
  if (loop == nullptr || arguments.positional.empty()) {
    return absl::InvalidArgumentError("loop.cycle: no items, expected 1 or more");
  }
  return arguments.positional[loop->index0 % arguments.positional.size()];
}

}  // namespace lowkey::jinja
