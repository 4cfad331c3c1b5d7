// Filters that give a string.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/filters.h"
#include "tokenizer/chat/builtins/text_functions.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

using Result = absl::StatusOr<Value>;

constexpr int64_t kMaxIndent = 64;

Result String(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  if (input.AsText() != nullptr) return input;
  LK_ASSIGN_OR_RETURN(Text text, ToText(input, arena));
  return arena.MakeText(std::move(text));
}

template <Case wanted>
Result CaseFilter(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_ASSIGN_OR_RETURN(const Text text, ToText(input, arena));
  return arena.MakeText(WithCase(text, wanted));
}

Result Trim(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"chars"}));
  LK_ASSIGN_OR_RETURN(const Text* set, bound.String(0));
  LK_ASSIGN_OR_RETURN(const Text text, ToText(input, arena));
  if (set != nullptr && set->size() > 64) {
    return absl::InvalidArgumentError("argument chars: over 64 bytes, expected fewer");
  }
  if (set != nullptr) LK_RETURN_IF_ERROR(arena.ChargeBytes(text.size() * set->size()));
  const ByteRange kept = set == nullptr ? StripSpace(text.bytes(), StripSide::kBoth)
                                        : StripSet(text.bytes(), set->bytes(), StripSide::kBoth);
  return arena.MakeText(text.Part(kept.begin, kept.end));
}

Result ReplaceFilter(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"old", "new", "count"}, 2));
  LK_ASSIGN_OR_RETURN(const Text text, ToText(input, arena));
  LK_ASSIGN_OR_RETURN(const Text old_text, ToText(bound[0], arena));
  LK_ASSIGN_OR_RETURN(const Text new_text, ToText(bound[1], arena));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> count, bound.Int(2));
  LK_ASSIGN_OR_RETURN(Text replaced, Replace(text, old_text, new_text, count, arena));
  return arena.MakeText(std::move(replaced));
}

absl::Status CheckIndent(const char* name, int64_t width) {
  if (width >= 0 && width <= kMaxIndent) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("argument ", name, ": ", width, ", expected 0..", kMaxIndent));
}

Result Indent(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"width", "first", "blank"}));
  Text indent(std::string(4, ' '));
  if (bound[0].AsText() != nullptr) {
    indent = *bound[0].AsText();
  } else if (bound.Has(0)) {
    LK_ASSIGN_OR_RETURN(const std::optional<int64_t> width, bound.Int(0));
    LK_RETURN_IF_ERROR(CheckIndent("width", width.value_or(0)));
    indent = Text(std::string(static_cast<size_t>(width.value_or(0)), ' '));
  }
  LK_ASSIGN_OR_RETURN(Text text, ToText(input, arena));
  text.Append("\n");
  const std::vector<Text> lines = SplitLines(text);
  Text indented;
  for (size_t i = 0; i < lines.size(); ++i) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(1 + indent.size() + lines[i].size()));
    if (i > 0) indented.Append("\n");
    const bool is_indented = i == 0 ? bound.IsTrue(1) : lines[i].size() > 0 || bound.IsTrue(2);
    if (is_indented) indented.Append(indent);
    indented.Append(lines[i]);
  }
  return arena.MakeText(std::move(indented));
}

absl::StatusOr<JsonOptions> ReadJsonOptions(const Arguments& arguments) {
  LK_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.ensure_ascii = bound.IsTrue(0);
  options.sort_keys = bound.IsTrue(3);
  if (const Text* indent = bound[1].AsText()) {
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
  options.item_separator = separators->items[0].AsText()->bytes();
  options.key_separator = separators->items[1].AsText()->bytes();
  return options;
}

Result ToJsonFilter(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const JsonOptions options, ReadJsonOptions(arguments));
  LK_ASSIGN_OR_RETURN(Text json, ToJson(input, options, arena));
  return arena.MakeText(std::move(json));
}

Result WordCount(const Value& input, const Arguments& arguments, Arena& arena) {
  LK_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {}).status());
  LK_ASSIGN_OR_RETURN(const Text text, ToText(input, arena));
  LK_ASSIGN_OR_RETURN(const std::vector<Text> words, Split(text, {}, arena));
  return Value(static_cast<int64_t>(words.size()));
}

}  // namespace

void AddTextFilters(FilterTable& table) {
  table["capitalize"] = CaseFilter<Case::kCapitalized>;
  table["indent"] = Indent;
  table["lower"] = CaseFilter<Case::kLower>;
  table["replace"] = ReplaceFilter;
  // Nothing is escaped, so nothing has to be kept from it.
  table["safe"] = String;
  table["string"] = String;
  table["title"] = CaseFilter<Case::kTitleWords>;
  table["tojson"] = ToJsonFilter;
  table["trim"] = Trim;
  table["upper"] = CaseFilter<Case::kUpper>;
  table["wordcount"] = WordCount;
}

}  // namespace lowkey::jinja
