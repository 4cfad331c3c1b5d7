// Filters that give a string, and the methods of strings. All keep track of the user's bytes.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"
#include "tokenizer/utf8.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The charge for one part of a text, before it is a text of its own.
constexpr size_t kPartBytes = 64;

// Replaces at most `count` times, from the left.
absl::StatusOr<Text> Replace(const Text& text, const Text& old_text, const Text& new_text,
                             std::optional<int64_t> count, Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.held_bytes()));
  size_t n_left = count.has_value() && *count >= 0 ? static_cast<size_t>(*count)
                                                   : std::numeric_limits<size_t>::max();
  Text replaced;
  size_t begin = 0;
  const auto replace = [&](ByteRange cut) {
    if (n_left == 0) return absl::OkStatus();
    --n_left;
    // A cut inside of the user's text leaves two ranges of one.
    LK_RETURN_IF_ERROR(arena.ChargeBytes(sizeof(ByteRange) + new_text.held_bytes()));
    replaced.AppendPart(text, begin, cut.begin);
    replaced.Append(new_text);
    begin = cut.end;
    return absl::OkStatus();
  };
  LK_RETURN_IF_ERROR(ForEachSeparator(text.bytes(), old_text.bytes(), replace));
  replaced.AppendPart(text, begin, text.size());
  return replaced;
}

// Splits by white space when `separator` is null, with at most `max_splits` cuts.
struct SplitOptions {
  const Text* separator = nullptr;
  std::optional<int64_t> max_splits = std::nullopt;
  bool is_from_right = false;
};

// Returns the places of the parts in `text`.
absl::StatusOr<std::vector<ByteRange>> Split(std::string_view text, const SplitOptions& options,
                                             Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  const bool is_by_space = options.separator == nullptr;
  if (!is_by_space && options.separator->size() == 0) {
    return absl::InvalidArgumentError("split: empty separator");
  }
  // White space at the ends separates nothing.
  const ByteRange kept =
      is_by_space ? StripSpace(text, StripSide::kBoth) : ByteRange{0, text.size()};
  std::vector<ByteRange> cuts;
  if (is_by_space && kept.begin == kept.end) return cuts;
  const auto add = [&](ByteRange cut) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(kPartBytes));
    cuts.push_back({kept.begin + cut.begin, kept.begin + cut.end});
    return absl::OkStatus();
  };
  const std::string_view body = text.substr(kept.begin, kept.end - kept.begin);
  LK_RETURN_IF_ERROR(is_by_space ? ForEachSpace(body, add)
                                 : ForEachSeparator(body, options.separator->bytes(), add));
  const size_t n_max = options.max_splits.has_value() && *options.max_splits >= 0
                           ? static_cast<size_t>(*options.max_splits)
                           : std::numeric_limits<size_t>::max();
  ByteRange rest = kept;
  // A part that no cut touches keeps the white space at its far end.
  const bool has_far_space = options.is_from_right ? kept.begin > 0 : kept.end < text.size();
  if (cuts.size() + (has_far_space ? 1 : 0) > n_max) {
    const auto n = static_cast<std::ptrdiff_t>(n_max);
    if (options.is_from_right) {
      cuts.erase(cuts.begin(), cuts.end() - n);
      rest.begin = 0;
    } else {
      cuts.erase(cuts.begin() + n, cuts.end());
      rest.end = text.size();
    }
  }
  // Each cut becomes the part before it.
  for (ByteRange& cut : cuts) cut = {std::exchange(rest.begin, cut.end), cut.begin};
  cuts.push_back(rest);
  return cuts;
}

absl::StatusOr<Value> MakeTexts(const Text& text, const std::vector<ByteRange>& parts,
                                Arena& arena) {
  std::vector<Value> values;
  for (const ByteRange& part : parts) {
    LK_ASSIGN_OR_RETURN(values.emplace_back(), arena.MakeText(text.Part(part.begin, part.end)));
  }
  return arena.MakeList(std::move(values));
}

template <StripSide side>
Result Strip(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text* set, bound.String(0));
  LK_ASSIGN_OR_RETURN(const Text text, ToText(self, arena));
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
Result SplitMethod(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text& text = *self.AsText();
  SplitOptions options{.is_from_right = is_from_right};
  LK_ASSIGN_OR_RETURN(options.separator, bound.String(0));
  LK_ASSIGN_OR_RETURN(options.max_splits, bound.Int(1));
  LK_ASSIGN_OR_RETURN(const std::vector<ByteRange> parts, Split(text.bytes(), options, arena));
  return MakeTexts(text, parts, arena);
}

Result SplitLinesMethod(const Value& self, const BoundArguments&, Arena& arena) {
  const Text& text = *self.AsText();
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  std::vector<Value> lines;
  LK_RETURN_IF_ERROR(ForEachLine(text.bytes(), [&](ByteRange line) {
    LK_ASSIGN_OR_RETURN(lines.emplace_back(), arena.MakeText(text.Part(line.begin, line.end)));
    return absl::OkStatus();
  }));
  return arena.MakeList(std::move(lines));
}

// startswith, endswith: takes one string, or a tuple of them.
template <bool is_start>
Result Begins(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text& text = *self.AsText();
  absl::Span<const Value> candidates(&bound[0], 1);
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
Result RemoveAffix(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text& text = *self.AsText();
  LK_ASSIGN_OR_RETURN(const Value has, Begins<is_prefix>(self, bound, arena));
  const Text* affix = bound[0].AsText();
  if (affix == nullptr) return absl::InvalidArgumentError("argument: expected str");
  if (!has.IsTrue()) return arena.MakeText(text);
  return arena.MakeText(is_prefix ? text.Part(affix->size(), text.size())
                                  : text.Part(0, text.size() - affix->size()));
}

Result JoinMethod(const Value& self, const BoundArguments& bound, Arena& arena) {
  const List* list = bound[0].AsList();
  if (list == nullptr) return absl::InvalidArgumentError("join: expected a list");
  const Text& text = *self.AsText();
  Text joined;
  for (const Value& item : list->items) {
    if (item.AsText() == nullptr) {
      return absl::InvalidArgumentError("join: an item is no str, expected only those");
    }
    LK_RETURN_IF_ERROR(arena.ChargeBytes(text.held_bytes() + item.AsText()->held_bytes()));
    if (&item != list->items.data()) joined.Append(text);
    joined.Append(*item.AsText());
  }
  return arena.MakeText(std::move(joined));
}

// Counts the characters before the first, or last, occurrence; -1: there is none.
template <bool is_last>
Result FindMethod(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text& text = *self.AsText();
  LK_ASSIGN_OR_RETURN(const Text* wanted, bound.String(0));
  if (wanted == nullptr) return absl::InvalidArgumentError("find: expected str");
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size() + wanted->size()));
  const std::string_view bytes = text.bytes();
  std::optional<size_t> found;
  for (size_t from = 0; from <= bytes.size();) {
    const size_t at = Find(bytes, wanted->bytes(), from);
    if (at == std::string_view::npos) break;
    found = at;
    if (!is_last) break;
    if (wanted->size() == 0) found = bytes.size();
    // The next one may overlap this one, so that the search goes on one byte behind its beginning.
    from = wanted->size() == 0 ? bytes.size() + 1 : *found + 1;
    LK_RETURN_IF_ERROR(arena.ChargeBytes(wanted->size()));
  }
  if (!found.has_value()) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CountCharacters(bytes.substr(0, *found))));
}

Result CountMethod(const Value& self, const BoundArguments& bound, Arena& arena) {
  const Text& text = *self.AsText();
  LK_ASSIGN_OR_RETURN(const Text* wanted, bound.String(0));
  if (wanted == nullptr || wanted->size() == 0) {
    return absl::InvalidArgumentError("count: expected str, not empty");
  }
  SplitOptions options{.separator = wanted};
  LK_ASSIGN_OR_RETURN(const std::vector<ByteRange> parts, Split(text.bytes(), options, arena));
  return Value(static_cast<int64_t>(parts.size()) - 1);
}

// str.isalpha and others: whether all characters are so, and there is one.
template <int (*is_so)(unsigned char)>
Result AllAre(const Value& self, const BoundArguments&, Arena& arena) {
  const Text& text = *self.AsText();
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
Result HasOnlyCase(const Value& self, const BoundArguments&, Arena& arena) {
  const Text& text = *self.AsText();
  LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size()));
  bool has_upper = false, has_lower = false;
  for (const char c : text.bytes()) {
    has_upper = has_upper || absl::ascii_isupper(static_cast<unsigned char>(c));
    has_lower = has_lower || absl::ascii_islower(static_cast<unsigned char>(c));
  }
  return Value(is_upper ? has_upper && !has_lower : has_lower && !has_upper);
}

constexpr int64_t kMaxIndent = 64;

Result String(const Value& self, const BoundArguments&, Arena& arena) {
  if (self.AsText() != nullptr) return self;
  LK_ASSIGN_OR_RETURN(Text text, ToText(self, arena));
  return arena.MakeText(std::move(text));
}

template <Case wanted>
Result ChangeCase(const Value& self, const BoundArguments&, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text text, ToText(self, arena));
  return arena.MakeText(WithCase(text, wanted));
}

Result ReplaceFilter(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text text, ToText(self, arena));
  LK_ASSIGN_OR_RETURN(const Text old_text, ToText(bound[0], arena));
  LK_ASSIGN_OR_RETURN(const Text new_text, ToText(bound[1], arena));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> count, bound.Int(2));
  LK_ASSIGN_OR_RETURN(Text replaced, Replace(text, old_text, new_text, count, arena));
  return arena.MakeText(std::move(replaced));
}

Result ReplaceMethod(const Value& self, const BoundArguments& bound, Arena& arena) {
  for (const size_t i : {0, 1}) {
    LK_ASSIGN_OR_RETURN(const Text* text, bound.String(i));
    if (text == nullptr) return absl::InvalidArgumentError("replace: None, expected str");
  }
  return ReplaceFilter(self, bound, arena);
}

absl::Status CheckIndent(const char* name, int64_t width) {
  if (width >= 0 && width <= kMaxIndent) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", name, ": ", width, ", expected 0..", kMaxIndent));
}

Result Indent(const Value& self, const BoundArguments& bound, Arena& arena) {
  Text indent(std::string(4, ' '));
  if (const Text* given = bound[0].AsText()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(given->held_bytes()));
    indent = *given;
  } else if (bound.Has(0)) {
    LK_ASSIGN_OR_RETURN(const std::optional<int64_t> width, bound.Int(0));
    LK_RETURN_IF_ERROR(CheckIndent("width", width.value_or(0)));
    indent = Text(std::string(static_cast<size_t>(width.value_or(0)), ' '));
  }
  LK_ASSIGN_OR_RETURN(Text text, ToText(self, arena));
  text.Append("\n");
  Text indented;
  bool is_first = true;
  LK_RETURN_IF_ERROR(ForEachLine(text.bytes(), [&](ByteRange line) {
    LK_RETURN_IF_ERROR(
        arena.ChargeBytes(1 + sizeof(ByteRange) + indent.held_bytes() + line.end - line.begin));
    if (!is_first) indented.Append("\n");
    if (is_first ? bound.IsTrue(1) : line.begin < line.end || bound.IsTrue(2)) {
      indented.Append(indent);
    }
    indented.AppendPart(text, line.begin, line.end);
    is_first = false;
    return absl::OkStatus();
  }));
  return arena.MakeText(std::move(indented));
}

absl::StatusOr<JsonOptions> ReadJsonOptions(const BoundArguments& bound, Arena& arena) {
  JsonOptions options;
  options.ensure_ascii = bound.IsTrue(0);
  options.sort_keys = bound.IsTrue(3);
  if (const Text* indent = bound[1].AsText()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(indent->size()));
    options.indent = indent->bytes();
  } else {
    LK_ASSIGN_OR_RETURN(const std::optional<int64_t> indent_width, bound.Int(1));
    if (indent_width.has_value()) {
      LK_RETURN_IF_ERROR(CheckIndent("indent", *indent_width));
      options.indent = std::string(static_cast<size_t>(*indent_width), ' ');
    }
  }
  if (!bound.Has(2) || bound[2].is_none()) return options;
  const List* separators = bound[2].AsList();
  if (separators == nullptr || separators->items.size() != 2 ||
      separators->items[0].AsText() == nullptr || separators->items[1].AsText() == nullptr) {
    return absl::InvalidArgumentError("argument separators: expected two strings");
  }
  for (const Value& separator : separators->items) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(separator.AsText()->size()));
  }
  options.item_separator = separators->items[0].AsText()->bytes();
  options.key_separator = separators->items[1].AsText()->bytes();
  return options;
}

Result ToJsonFilter(const Value& self, const BoundArguments& bound, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const JsonOptions options, ReadJsonOptions(bound, arena));
  LK_ASSIGN_OR_RETURN(Text json, ToJson(self, options, arena));
  return arena.MakeText(std::move(json));
}

Result WordCount(const Value& self, const BoundArguments&, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Text text, ToText(self, arena));
  LK_ASSIGN_OR_RETURN(const std::vector<ByteRange> words, Split(text.bytes(), {}, arena));
  return Value(static_cast<int64_t>(words.size()));
}

using Kind = Builtin::Kind;

constexpr Builtin kTextBuiltins[] = {
    {Kind::kFilter, "capitalize", ChangeCase<Case::kCapitalized>},
    {Kind::kFilter, "indent", Indent, {"width", "first", "blank"}},
    {Kind::kFilter, "lower", ChangeCase<Case::kLower>},
    {Kind::kFilter, "replace", ReplaceFilter, {"old", "new", "count"}, 2},
    // Nothing is escaped, so nothing has to be kept from it.
    {Kind::kFilter, "safe", String},
    {Kind::kFilter, "string", String},
    {Kind::kFilter, "title", ChangeCase<Case::kTitleWords>},
    {Kind::kFilter, "tojson", ToJsonFilter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {Kind::kFilter, "trim", Strip<StripSide::kBoth>, {"chars"}},
    {Kind::kFilter, "upper", ChangeCase<Case::kUpper>},
    {Kind::kFilter, "wordcount", WordCount},
    {Kind::kTextMethod, "capitalize", ChangeCase<Case::kCapitalized>},
    {Kind::kTextMethod, "count", CountMethod, {"sub"}, 1},
    {Kind::kTextMethod, "endswith", Begins<false>, {"prefix"}, 1},
    {Kind::kTextMethod, "find", FindMethod<false>, {"sub"}, 1},
    {Kind::kTextMethod, "isalnum", AllAre<IsAlnum>},
    {Kind::kTextMethod, "isalpha", AllAre<IsAlpha>},
    {Kind::kTextMethod, "isdigit", AllAre<IsDigit>},
    {Kind::kTextMethod, "islower", HasOnlyCase<false>},
    {Kind::kTextMethod, "isspace", AllAre<IsAsciiSpace>},
    {Kind::kTextMethod, "isupper", HasOnlyCase<true>},
    {Kind::kTextMethod, "join", JoinMethod, {"items"}, 1},
    {Kind::kTextMethod, "lower", ChangeCase<Case::kLower>},
    {Kind::kTextMethod, "lstrip", Strip<StripSide::kLeft>, {"chars"}},
    {Kind::kTextMethod, "removeprefix", RemoveAffix<true>, {"prefix"}, 1},
    {Kind::kTextMethod, "removesuffix", RemoveAffix<false>, {"prefix"}, 1},
    {Kind::kTextMethod, "replace", ReplaceMethod, {"old", "new", "count"}, 2},
    {Kind::kTextMethod, "rfind", FindMethod<true>, {"sub"}, 1},
    {Kind::kTextMethod, "rsplit", SplitMethod<true>, {"sep", "maxsplit"}},
    {Kind::kTextMethod, "rstrip", Strip<StripSide::kRight>, {"chars"}},
    {Kind::kTextMethod, "split", SplitMethod<false>, {"sep", "maxsplit"}},
    {Kind::kTextMethod, "splitlines", SplitLinesMethod},
    {Kind::kTextMethod, "startswith", Begins<true>, {"prefix"}, 1},
    {Kind::kTextMethod, "strip", Strip<StripSide::kBoth>, {"chars"}},
    {Kind::kTextMethod, "title", ChangeCase<Case::kTitle>},
    {Kind::kTextMethod, "upper", ChangeCase<Case::kUpper>},
};

}  // namespace

absl::Span<const Builtin> TextBuiltins() { return kTextBuiltins; }

}  // namespace lowkey::jinja
