#include "tokenizer/chat/builtins/functions.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox has the same
constexpr size_t kMaxTimeFormatBytes = 256;

absl::StatusOr<Value> Range(const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound,
                      BoundArguments::Bind(arguments, {"start", "stop", "step"}, 1));
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

absl::StatusOr<Value> MakeNamespace(const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const Dict attributes, GatherAttributes(arguments, arena));
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

absl::Status RaiseException(const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"message"}, 1));
  LK_ASSIGN_OR_RETURN(const Text message, ToText(bound[0], arena));
  // Enough to read; the whole of it could be a megabyte of somebody's text.
  constexpr size_t kMaxShownBytes = 1024;
  size_t n_bytes = std::min(message.size(), kMaxShownBytes);
  while (n_bytes < message.size() && (message.bytes()[n_bytes] & 0xC0) == 0x80) --n_bytes;
  return absl::InvalidArgumentError(message.bytes().substr(0, n_bytes));
}

// Only plain conversions: a width such as %99999d would be obeyed.
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

absl::StatusOr<Value> ShowTime(const Arguments& arguments, const Clock& clock, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, {"format"}, 1));
  LK_ASSIGN_OR_RETURN(const Text* format, bound.String(0));
  if (format == nullptr) return absl::InvalidArgumentError("format: expected str");
  LK_RETURN_IF_ERROR(CheckTimeFormat(format->bytes()));
  if (format->size() == 0) return arena.MakeText(std::string());
  const std::tm time = absl::ToTM(clock.now, clock.zone);  // its zone is not set: no %Z
  std::array<char, 8192> shown;
  // No conversion gives more than some thirty bytes.
  const size_t n = std::strftime(shown.data(), shown.size(), format->bytes().c_str(), &time);
  return arena.MakeText(std::string(shown.data(), n));
}

}  // namespace

std::optional<Function> FindFunction(std::string_view name) {
  if (name == "range") return Function::kRange;
  if (name == "namespace") return Function::kNamespace;
  if (name == "dict") return Function::kDict;
  if (name == "raise_exception") return Function::kRaiseException;
  if (name == "strftime_now") return Function::kStrftimeNow;
  return std::nullopt;
}

absl::StatusOr<Value> CallFunction(Function function, const Arguments& arguments,
                                   const Clock& clock, Arena& arena) {
  switch (function) {
    case Function::kRange:
      return Range(arguments, arena);
    case Function::kNamespace:
      return MakeNamespace(arguments, arena);
    case Function::kDict: {
      LK_ASSIGN_OR_RETURN(Dict dict, GatherAttributes(arguments, arena));
      return arena.MakeDict(std::move(dict));
    }
    case Function::kRaiseException:
      return RaiseException(arguments, arena);
    case Function::kStrftimeNow:
      return ShowTime(arguments, clock, arena);
  }
  return absl::InternalError("unknown function");
}

}  // namespace lowkey::jinja
