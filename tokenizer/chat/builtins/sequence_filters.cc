// Filters over lists, dicts and characters.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/filters.h"
#include "tokenizer/chat/builtins/methods.h"
#include "tokenizer/chat/builtins/text_functions.h"
#include "tokenizer/chat/builtins/value_tests.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// item.a.b for "a.b"; a number is an index.
Result FollowPath(Value item, const Value& path, Arena& arena) {
  if (path.AsText() == nullptr) return GetSubscript(item, path, arena);
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

// What items are compared by: an attribute when one is given, without regard to case unless told.
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

Result Sort(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  LK_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(input, bound[2], bound.IsTrue(1), arena));
  LK_RETURN_IF_ERROR(SortByKey(keyed, bound.IsTrue(0), arena));
  return ItemsOf(keyed, arena);
}

Result DictSort(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"case_sensitive", "by", "reverse"}));
  LK_ASSIGN_OR_RETURN(const Text* by, bound.String(1));
  const Dict* dict = input.AsDict();
  if (dict == nullptr) return absl::InvalidArgumentError("expected a dict");
  std::vector<Value> pairs;
  for (const Dict::Entry& entry : dict->entries()) {
    LK_ASSIGN_OR_RETURN(const Value pair, arena.MakeTuple({Value(entry.key), entry.value}));
    pairs.push_back(pair);
  }
  LK_ASSIGN_OR_RETURN(const Value list, arena.MakeList(std::move(pairs)));
  const Value place(int64_t{by != nullptr && by->bytes() == "value"});
  LK_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(list, place, bound.IsTrue(0), arena));
  LK_RETURN_IF_ERROR(SortByKey(keyed, bound.IsTrue(2), arena));
  return ItemsOf(keyed, arena);
}

Result Unique(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"case_sensitive", "attribute"}));
  LK_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                      WithKeys(input, bound[1], bound.IsTrue(0), arena));
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
Result Extreme(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"case_sensitive", "attribute"}));
  LK_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                      WithKeys(input, bound[1], bound.IsTrue(0), arena));
  if (keyed.empty()) return Value();
  const Keyed* best = &keyed[0];
  for (const Keyed& candidate : keyed) {
    LK_ASSIGN_OR_RETURN(const int order, Compare(candidate.key, best->key, arena));
    if (is_max ? order > 0 : order < 0) best = &candidate;
  }
  return best->item;
}

Result Sum(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"attribute", "start"}));
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
  Value sum = bound.Has(1) ? bound[1] : Value(int64_t{0});
  for (Value item : items) {
    if (bound.Has(0)) {
      LK_ASSIGN_OR_RETURN(item, FollowPath(item, bound[0], arena));
    }
    LK_ASSIGN_OR_RETURN(sum, Calculate(Arithmetic::kAdd, sum, item, arena));
  }
  return sum;
}

Result Join(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"d", "attribute"}));
  LK_ASSIGN_OR_RETURN(const Text separator, ToText(bound[0], arena));
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
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
Result End(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  if (input.AsText() != nullptr || input.AsList() != nullptr) {
    return GetItem(input, Value(int64_t{is_last ? -1 : 0}), arena);
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
  if (items.empty()) return Value();
  return is_last ? items.back() : items.front();
}

Result LengthFilter(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_ASSIGN_OR_RETURN(const int64_t length, Length(input, arena));
  return Value(length);
}

Result ListFilter(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, arena));
  return arena.MakeList(std::move(items));
}

Result Reverse(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  if (input.AsText() != nullptr) return Slice(input, {.step = -1}, arena);
  LK_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, arena));
  std::reverse(items.begin(), items.end());
  return arena.MakeList(std::move(items));
}

Result Items(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  if (input.is_undefined()) return arena.MakeList({});
  if (input.AsDict() == nullptr) return absl::InvalidArgumentError("expected a dict");
  return CallMethod({input, "items"}, {}, arena);
}

// The arguments after the first.
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

Result Map(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                        BoundArguments::Bind(arguments, {"attribute", "default"}, 1));
    for (const Value& item : items) {
      LK_ASSIGN_OR_RETURN(const Value value, FollowPath(item, bound[0], arena));
      mapped.push_back(value.is_undefined() && bound.Has(1) ? bound[1] : value);
    }
    return arena.MakeList(std::move(mapped));
  }
  LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(arguments));
  const Filter filter = FindFilter(name->bytes());
  // A map of maps would recurse as deep as its arguments say.
  if (filter == nullptr || filter == Map) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter ", Quoted(name->bytes()), " is not supported here"));
  }
  const Arguments rest = WithoutFirst(arguments);
  for (const Value& item : items) {
    LK_RETURN_IF_ERROR(arena.ChargeStep());
    LK_ASSIGN_OR_RETURN(const Value value, filter(item, rest, arena));
    mapped.push_back(value);
  }
  return arena.MakeList(std::move(mapped));
}

// select, reject, selectattr, rejectattr: items of which a test, or their truth, is as wanted.
template <bool wanted, bool is_by_attribute>
Result Select(const Value& input, const Arguments& arguments, Arena& arena) {
  Arguments rest = arguments;
  Value path;
  if (is_by_attribute) {
    LK_RETURN_IF_ERROR(FirstAsName(arguments).status());
    path = arguments.positional[0];
    rest = WithoutFirst(rest);
  }
  ValueTest test = nullptr;
  if (!rest.positional.empty()) {
    LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(rest));
    test = FindTest(name->bytes());
    if (test == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("test ", Quoted(name->bytes()), " is not supported"));
    }
    rest = WithoutFirst(rest);
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, arena));
  std::vector<Value> selected;
  for (const Value& item : items) {
    LK_RETURN_IF_ERROR(arena.ChargeStep());
    Value subject = item;
    if (is_by_attribute) {
      LK_ASSIGN_OR_RETURN(subject, FollowPath(item, path, arena));
    }
    bool is_so = subject.IsTrue();
    if (test != nullptr) {
      LK_ASSIGN_OR_RETURN(is_so, test(subject, rest, arena));
    }
    if (is_so == wanted) selected.push_back(item);
  }
  return arena.MakeList(std::move(selected));
}

Result Attr(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text* name, FirstAsName(arguments));
  if (input.AsDict() != nullptr) {
    // Only what the dict itself has: its methods, never its keys.
    const Value* key = input.AsDict()->Find(name->bytes());
    if (key != nullptr) return Value(Undefined{&name->bytes()});
  }
  return GetAttribute(input, *name, arena);
}

}  // namespace

void AddSequenceFilters(FilterTable& table) {
  table["attr"] = Attr;
  table["count"] = LengthFilter;
  table["dictsort"] = DictSort;
  table["first"] = End<false>;
  table["items"] = Items;
  table["join"] = Join;
  table["last"] = End<true>;
  table["length"] = LengthFilter;
  table["list"] = ListFilter;
  table["map"] = Map;
  table["max"] = Extreme<true>;
  table["min"] = Extreme<false>;
  table["reject"] = Select<false, false>;
  table["rejectattr"] = Select<false, true>;
  table["reverse"] = Reverse;
  table["select"] = Select<true, false>;
  table["selectattr"] = Select<true, true>;
  table["sort"] = Sort;
  table["sum"] = Sum;
  table["unique"] = Unique;
}

}  // namespace lowkey::jinja
