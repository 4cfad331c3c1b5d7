#include "tokenizer/chat/builtins/text_methods.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/text_functions.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

absl::StatusOr<Value> MakeTexts(std::vector<Text> texts, Arena& arena) {
  std::vector<Value> values;
  for (Text& text : texts) {
    LK_ASSIGN_OR_RETURN(const Value value, arena.MakeText(std::move(text)));
    values.push_back(value);
  }
  return arena.MakeList(std::move(values));
}

template <StripSide side>
Result Strip(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"chars"}));
  LK_ASSIGN_OR_RETURN(const Text* set, bound.String(0));
  if (set != nullptr) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size() * std::min<size_t>(set->size(), 64)));
    if (set->size() > 64) {
      return absl::InvalidArgumentError("argument chars: over 64 bytes, expected fewer");
    }
  }
  const ByteRange kept =
      set == nullptr ? StripSpace(text.bytes(), side) : StripSet(text.bytes(), set->bytes(), side);
  return arena.MakeText(text.Part(kept.begin, kept.end));
}

template <bool is_from_right>
Result SplitMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"sep", "maxsplit"}));
  SplitOptions options{.is_from_right = is_from_right};
  LK_ASSIGN_OR_RETURN(options.separator, bound.String(0));
  LK_ASSIGN_OR_RETURN(options.max_splits, bound.Int(1));
  LK_ASSIGN_OR_RETURN(std::vector<Text> parts, Split(text, options, arena));
  return MakeTexts(std::move(parts), arena);
}

Result SplitLinesMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  return MakeTexts(SplitLines(text), arena);
}

template <Case wanted>
Result CaseMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  return arena.MakeText(WithCase(text, wanted));
}

Result ReplaceMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"old", "new", "count"}, 2));
  LK_ASSIGN_OR_RETURN(const Text* old_text, bound.String(0));
  LK_ASSIGN_OR_RETURN(const Text* new_text, bound.String(1));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> count, bound.Int(2));
  if (old_text == nullptr || new_text == nullptr) {
    return absl::InvalidArgumentError("replace: None, expected str");
  }
  LK_ASSIGN_OR_RETURN(Text replaced, Replace(text, *old_text, *new_text, count, arena));
  return arena.MakeText(std::move(replaced));
}

// startswith, endswith: one string, or a tuple of them.
template <bool is_start>
Result Begins(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"prefix"}, 1));
  std::vector<Value> candidates = {bound[0]};
  if (const List* list = bound[0].AsList(); list != nullptr && list->is_tuple) {
    candidates = list->items;
  }
  for (const Value& candidate : candidates) {
    const Text* affix = candidate.AsText();
    if (affix == nullptr) {
      return absl::InvalidArgumentError("argument: expected str, or a tuple of them");
    }
    LK_RETURN_IF_ERROR(arena.ChargeBytes(affix->size()));
    if (is_start ? text.bytes().starts_with(affix->bytes())
                 : text.bytes().ends_with(affix->bytes())) {
      return Value(true);
    }
  }
  return Value(false);
}

template <bool is_prefix>
Result RemoveAffix(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Value has, Begins<is_prefix>(text, arguments, arena));
  const Text* affix = arguments.positional.empty() ? nullptr : arguments.positional[0].AsText();
  if (affix == nullptr) return absl::InvalidArgumentError("argument: expected str");
  if (!has.IsTrue()) return arena.MakeText(text);
  return arena.MakeText(is_prefix ? text.Part(affix->size(), text.size())
                                  : text.Part(0, text.size() - affix->size()));
}

Result JoinMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"items"}, 1));
  Text joined;
  bool is_first = true;
  for (Value const& item :
       bound[0].AsList() == nullptr ? std::vector<Value>() : bound[0].AsList()->items) {
    if (item.AsText() == nullptr) {
      return absl::InvalidArgumentError("join: an item is no str, expected only those");
    }
    LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size() + item.AsText()->size()));
    if (!is_first) joined.Append(text);
    joined.Append(*item.AsText());
    is_first = false;
  }
  if (bound[0].AsList() == nullptr) {
    return absl::InvalidArgumentError("join: expected a list");
  }
  return arena.MakeText(std::move(joined));
}

// Characters before the first, or last, occurrence; -1: none.
template <bool is_last>
Result FindMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"sub"}, 1));
  LK_ASSIGN_OR_RETURN(const Text* wanted, bound.String(0));
  if (wanted == nullptr) return absl::InvalidArgumentError("find: expected str");
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size() + wanted->size()));
  const std::string_view bytes = text.bytes();
  std::optional<size_t> found;
  for (size_t from = 0; from <= bytes.size();) {
    const void* at =
        memmem(bytes.data() + from, bytes.size() - from, wanted->bytes().data(), wanted->size());
    if (at == nullptr) break;
    found = static_cast<size_t>(static_cast<const char*>(at) - bytes.data());
    if (!is_last) break;
    if (wanted->size() == 0) found = bytes.size();
    // Past every occurrence: overlapping ones differ only in where they begin.
    from = wanted->size() == 0 ? bytes.size() + 1 : *found + 1;
    LK_RETURN_IF_ERROR(arena.ChargeBytes(wanted->size()));
  }
  if (!found.has_value()) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CountCharacters(bytes.substr(0, *found))));
}

Result CountMethod(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"sub"}, 1));
  LK_ASSIGN_OR_RETURN(const Text* wanted, bound.String(0));
  if (wanted == nullptr || wanted->size() == 0) {
    return absl::InvalidArgumentError("count: expected str, not empty");
  }
  SplitOptions options{.separator = wanted};
  LK_ASSIGN_OR_RETURN(const std::vector<Text> parts, Split(text, options, arena));
  return Value(static_cast<int64_t>(parts.size()) - 1);
}

// is...: whether all characters are so, and there is one.
template <int (*is_so)(unsigned char)>
Result AllAre(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  return Value(text.size() > 0 && std::all_of(text.bytes().begin(), text.bytes().end(), [](char c) {
                 return is_so(static_cast<unsigned char>(c)) != 0;
               }));
}

int IsAlpha(unsigned char c) { return absl::ascii_isalpha(c) || c >= 0x80; }
int IsAlnum(unsigned char c) { return absl::ascii_isalnum(c) || c >= 0x80; }
int IsDigit(unsigned char c) { return absl::ascii_isdigit(c); }
int IsAsciiSpace(unsigned char c) { return IsSpace(c); }

template <bool is_upper>
Result HasOnlyCase(const Text& text, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  bool has_upper = false, has_lower = false;
  for (const char c : text.bytes()) {
    has_upper = has_upper || absl::ascii_isupper(static_cast<unsigned char>(c));
    has_lower = has_lower || absl::ascii_islower(static_cast<unsigned char>(c));
  }
  return Value(is_upper ? has_upper && !has_lower : has_lower && !has_upper);
}

}  // namespace

TextMethod FindTextMethod(std::string_view name) {
  static const auto* const methods = new absl::flat_hash_map<std::string_view, TextMethod>{
      {"capitalize", CaseMethod<Case::kCapitalized>},
      {"count", CountMethod},
      {"endswith", Begins<false>},
      {"find", FindMethod<false>},
      {"isalnum", AllAre<IsAlnum>},
      {"isalpha", AllAre<IsAlpha>},
      {"isdigit", AllAre<IsDigit>},
      {"islower", HasOnlyCase<false>},
      {"isspace", AllAre<IsAsciiSpace>},
      {"isupper", HasOnlyCase<true>},
      {"join", JoinMethod},
      {"lower", CaseMethod<Case::kLower>},
      {"lstrip", Strip<StripSide::kLeft>},
      {"removeprefix", RemoveAffix<true>},
      {"removesuffix", RemoveAffix<false>},
      {"replace", ReplaceMethod},
      {"rfind", FindMethod<true>},
      {"rsplit", SplitMethod<true>},
      {"rstrip", Strip<StripSide::kRight>},
      {"split", SplitMethod<false>},
      {"splitlines", SplitLinesMethod},
      {"startswith", Begins<true>},
      {"strip", Strip<StripSide::kBoth>},
      {"title", CaseMethod<Case::kTitle>},
      {"upper", CaseMethod<Case::kUpper>},
  };
  const auto it = methods->find(name);
  return it == methods->end() ? nullptr : it->second;
}

bool IsUnsupportedTextMethod(std::string_view name) {
  static const auto* const names = new absl::flat_hash_set<std::string_view>{
      "casefold",    "center",   "encode",    "expandtabs", "format",  "format_map",
      "index",       "isascii",  "isdecimal", "isnumeric",  "istitle", "isidentifier",
      "isprintable", "ljust",    "maketrans", "partition",  "rindex",  "rjust",
      "rpartition",  "swapcase", "translate", "zfill"};
  return names->contains(name);
}

}  // namespace lowkey::jinja
