// Filters over lists, dicts and characters.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Returns item.a.b for "a.b"; a number is an index.
Result FollowPath(Value item, const Value& path, Arena& arena) {
  if (path.AsText() == nullptr) return GetSubscript(item, path, arena);
  LK_RETURN_IF_ERROR(arena.ChargeBytes(path.AsText()->size()));
  for (absl::string_view part : absl::StrSplit(path.AsText()->bytes(), '.')) {
    int64_t index = 0;
    if (absl::SimpleAtoi(part, &index)) {
      LK_ASSIGN_OR_RETURN(item, GetSubscript(item, Value(index), arena));
    } else {
      LK_ASSIGN_OR_RETURN(const Value name, arena.MakeText(std::string(part)));
      LK_ASSIGN_OR_RETURN(item, GetSubscript(item, name, arena));
    }
  }
  return item;
}

// Returns the value to compare an item by: itself or an attribute, in lower case unless told.
Result KeyOf(const Value& item, const Value& attribute, bool is_case_sensitive, Arena& arena) {
  Value key = item;
  if (!attribute.is_undefined() && !attribute.is_none()) {
    LK_ASSIGN_OR_RETURN(key, FollowPath(item, attribute, arena));
  }
  if (key.AsText() == nullptr || is_case_sensitive) return key;
  return arena.MakeText(WithCase(*key.AsText(), Case::kLower));
}

struct Keyed {
  Value key;
  Value item;
};

absl::StatusOr<std::vector<Keyed>> WithKeys(const Value& input, const Value& attribute,
                                            bool is_case_sensitive, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    LK_ASSIGN_OR_RETURN(const Value key, KeyOf(item, attribute, is_case_sensitive, arena));
    keyed.push_back({key, item});
  }
  return keyed;
}

absl::Status SortByKey(std::vector<Keyed>& items, bool is_reversed, Arena& arena) {
  absl::Status status;
  const auto is_before = [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<int> order = Compare(a.key, b.key, arena);
    if (!order.ok()) status = order.status();
    return order.ok() && (is_reversed ? *order > 0 : *order < 0);
  };
  std::stable_sort(items.begin(), items.end(), is_before);
  return status;
}

Result ItemsOf(const std::vector<Keyed>& keyed, Arena& arena) {
  std::vector<Value> items;
  for (const Keyed& one : keyed) items.push_back(one.item);
  return arena.MakeList(std::move(items));
}

Result Sort(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(self, bound[2], bound.IsTrue(1), arena));
  LK_RETURN_IF_ERROR(SortByKey(keyed, bound.IsTrue(0), arena));
  return ItemsOf(keyed, arena);
}

Result Items(const Value& self, const BoundArguments&, Arena& arena) {
  if (self.is_undefined()) return arena.MakeList({});
  if (self.AsDict() == nullptr) return absl::InvalidArgumentError("expected a dict");
  return CallBuiltin(*FindBuiltin(Builtin::Kind::kDictMethod, "items"), self, {}, arena);
}

Result DictSort(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text* by, bound.String(1));
  if (self.AsDict() == nullptr) return absl::InvalidArgumentError("expected a dict");
  LK_ASSIGN_OR_RETURN(const Value list, Items(self, bound, arena));
  const Value place(int64_t{by != nullptr && by->bytes() == "value"});
  LK_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(list, place, bound.IsTrue(0), arena));
  LK_RETURN_IF_ERROR(SortByKey(keyed, bound.IsTrue(2), arena));
  return ItemsOf(keyed, arena);
}

Result Unique(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                      WithKeys(self, bound[1], bound.IsTrue(0), arena));
  std::vector<Keyed> kept;
  for (const Keyed& candidate : keyed) {
    bool is_new = true;
    for (const Keyed& one : kept) {
      LK_ASSIGN_OR_RETURN(const bool equal, AreEqual(one.key, candidate.key, arena));
      is_new = is_new && !equal;
      if (!is_new) break;
    }
    if (is_new) kept.push_back(candidate);
  }
  return ItemsOf(kept, arena);
}

template <bool is_max>
Result Extreme(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                      WithKeys(self, bound[1], bound.IsTrue(0), arena));
  if (keyed.empty()) return Value();
  const Keyed* best = &keyed[0];
  for (const Keyed& candidate : keyed) {
    LK_ASSIGN_OR_RETURN(const int order, Compare(candidate.key, best->key, arena));
    if (is_max ? order > 0 : order < 0) best = &candidate;
  }
  return best->item;
}

Result Sum(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  Value sum = bound.Has(1) ? bound[1] : Value(int64_t{0});
  for (Value item : items) {
    if (bound.Has(0)) {
      LK_ASSIGN_OR_RETURN(item, FollowPath(item, bound[0], arena));
    }
    LK_ASSIGN_OR_RETURN(sum, Calculate(Arithmetic::kAdd, sum, item, arena));
  }
  return sum;
}

Result Join(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text separator, ToText(bound[0], arena));
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  Text joined;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound.Has(1)) {
      LK_ASSIGN_OR_RETURN(item, FollowPath(item, bound[1], arena));
    }
    LK_ASSIGN_OR_RETURN(const Text text, ToText(item, arena));
    LK_RETURN_IF_ERROR(arena.ChargeBytes(separator.size()));
    if (i > 0) joined.Append(separator);
    joined.Append(text);
  }
  return arena.MakeText(std::move(joined));
}

template <bool is_last>
Result End(const Value& self, const BoundArguments&, Arena& arena) {
  if (self.AsText() != nullptr || self.AsList() != nullptr) {
    return GetItem(self, Value(int64_t{is_last ? -1 : 0}), arena);
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  if (items.empty()) return Value();
  return is_last ? items.back() : items.front();
}

Result LengthFilter(const Value& self, const BoundArguments&, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const int64_t length, Length(self, arena));
  return Value(length);
}

Result ListFilter(const Value& self, const BoundArguments&, Arena& arena) {
  LK_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, arena));
  return arena.MakeList(std::move(items));
}

Result Reverse(const Value& self, const BoundArguments&, Arena& arena) {
  if (self.AsText() != nullptr) return Slice(self, {.step = -1}, arena);
  LK_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(self, arena));
  std::reverse(items.begin(), items.end());
  return arena.MakeList(std::move(items));
}

// Returns the arguments after the first.
Arguments WithoutFirst(const Arguments& arguments) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return rest;
}

absl::StatusOr<const Text*> FirstAsName(const Arguments& arguments) {
  if (arguments.positional.empty() || arguments.positional[0].AsText() == nullptr) {
    return absl::InvalidArgumentError("first argument: expected a name");
  }
  return arguments.positional[0].AsText();
}

Result MapAttribute(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    LK_ASSIGN_OR_RETURN(const Value value, FollowPath(item, bound[0], arena));
    mapped.push_back(value.is_undefined() && bound.Has(1) ? bound[1] : value);
  }
  return arena.MakeList(std::move(mapped));
}

Result Map(const Value& self, const BoundArguments& bound, Arena& arena) {
  if (bound.given().positional.empty()) {
    constexpr Builtin kByAttribute = {
        Builtin::Kind::kFilter, "map", MapAttribute, {"attribute", "default"}, 1};
    return CallBuiltin(kByAttribute, self, bound.given(), arena);
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  std::vector<Value> mapped;
  LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(bound.given()));
  const Builtin* filter = FindBuiltin(Builtin::Kind::kFilter, name->bytes());
  // A map of maps would recurse as deep as its arguments say.
  if (filter == nullptr || filter->call == Map) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter ", Quoted(name->bytes()), " is not supported here"));
  }
  const Arguments rest = WithoutFirst(bound.given());
  for (const Value& item : items) {
    LK_RETURN_IF_ERROR(arena.ChargeStep());
    LK_ASSIGN_OR_RETURN(mapped.emplace_back(), CallBuiltin(*filter, item, rest, arena));
  }
  return arena.MakeList(std::move(mapped));
}

// select, reject, selectattr, rejectattr: keeps the items whose test, or truth, is as wanted.
template <bool wanted, bool is_by_attribute>
Result Select(const Value& self, const BoundArguments& bound, Arena& arena) {
  Arguments rest = bound.given();
  Value path;
  if (is_by_attribute) {
    LK_RETURN_IF_ERROR(FirstAsName(bound.given()).status());
    path = bound.given().positional[0];
    rest = WithoutFirst(rest);
  }
  const Builtin* test = nullptr;
  if (!rest.positional.empty()) {
    LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(rest));
    test = FindBuiltin(Builtin::Kind::kTest, name->bytes());
    if (test == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("test ", Quoted(name->bytes()), " is not supported"));
    }
    rest = WithoutFirst(rest);
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(self, arena));
  std::vector<Value> selected;
  for (const Value& item : items) {
    LK_RETURN_IF_ERROR(arena.ChargeStep());
    Value subject = item;
    if (is_by_attribute) {
      LK_ASSIGN_OR_RETURN(subject, FollowPath(item, path, arena));
    }
    if (test != nullptr) {
      LK_ASSIGN_OR_RETURN(subject, CallBuiltin(*test, subject, rest, arena));
    }
    if (subject.IsTrue() == wanted) selected.push_back(item);
  }
  return arena.MakeList(std::move(selected));
}

Result Attr(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(bound.given()));
  if (self.AsDict() != nullptr) {
    // The filter finds the methods of a dict, never its keys.
    const Value* key = self.AsDict()->Find(name->bytes());
    if (key != nullptr) return Value(Undefined{&name->bytes()});
  }
  return GetAttribute(self, *name, arena);
}

using Kind = Builtin::Kind;

constexpr Builtin kSequenceBuiltins[] = {
    {Kind::kFilter, "attr", Attr, {kAnyArguments}},
    {Kind::kFilter, "count", LengthFilter},
    {Kind::kFilter, "dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {Kind::kFilter, "first", End<false>},
    {Kind::kFilter, "items", Items},
    {Kind::kFilter, "join", Join, {"d", "attribute"}},
    {Kind::kFilter, "last", End<true>},
    {Kind::kFilter, "length", LengthFilter},
    {Kind::kFilter, "list", ListFilter},
    {Kind::kFilter, "map", Map, {kAnyArguments}},
    {Kind::kFilter, "max", Extreme<true>, {"case_sensitive", "attribute"}},
    {Kind::kFilter, "min", Extreme<false>, {"case_sensitive", "attribute"}},
    {Kind::kFilter, "reject", Select<false, false>, {kAnyArguments}},
    {Kind::kFilter, "rejectattr", Select<false, true>, {kAnyArguments}},
    {Kind::kFilter, "reverse", Reverse},
    {Kind::kFilter, "select", Select<true, false>, {kAnyArguments}},
    {Kind::kFilter, "selectattr", Select<true, true>, {kAnyArguments}},
    {Kind::kFilter, "sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {Kind::kFilter, "sum", Sum, {"attribute", "start"}},
    {Kind::kFilter, "unique", Unique, {"case_sensitive", "attribute"}},
};

}  // namespace

absl::Span<const Builtin> SequenceBuiltins() { return kSequenceBuiltins; }

}  // namespace lowkey::jinja
