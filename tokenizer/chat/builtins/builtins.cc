#include "tokenizer/chat/builtins/builtins.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::jinja {

absl::StatusOr<BoundArguments> BoundArguments::Bind(const Arguments& arguments,
                                                    const Builtin& builtin) {
  BoundArguments bound(arguments, builtin);
  const auto& names = builtin.parameters;
  if (names[0] == kAnyArguments) return bound;
  const size_t n_names =
      static_cast<size_t>(std::find(names.begin(), names.end(), "") - names.begin());
  if (arguments.positional.size() > n_names) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.positional.size(), " arguments, expected at most ", n_names));
  }
  std::array<bool, 4> is_given = {};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = arguments.positional[i];
    is_given[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const size_t i = static_cast<size_t>(std::find(names.begin(), names.begin() + n_names, name) -
                                         names.begin());
    if (i == n_names || is_given[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument ", std::string(name), i == n_names ? ": not known here" : ": given twice"));
    }
    bound.values_[i] = value;
    is_given[i] = true;
  }
  for (size_t i = 0; i < builtin.n_required; ++i) {
    if (!is_given[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", std::string(names[i]), ": missing"));
    }
  }
  return bound;
}

absl::Status BoundArguments::WrongType(size_t i, std::string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat("argument ", std::string(builtin_->parameters[i]),
                                                 ": ", std::string(values_[i].TypeName()),
                                                 ", expected ", std::string(expected)));
}

absl::StatusOr<std::optional<int64_t>> BoundArguments::Int(size_t i) const {
  if (!Has(i) || values_[i].is_none()) return std::nullopt;
  const std::optional<int64_t> value = values_[i].AsInt();
  if (!value.has_value()) return WrongType(i, "int");
  return value;
}

absl::StatusOr<const Text*> BoundArguments::String(size_t i) const {
  if (!Has(i) || values_[i].is_none()) return nullptr;
  const Text* text = values_[i].AsText();
  if (text == nullptr) return WrongType(i, "str");
  return text;
}

const Builtin* FindBuiltin(Builtin::Kind kind, std::string_view name) {
  using Key = std::pair<Builtin::Kind, std::string_view>;
  static const auto* const table = [] {
    auto* builtins = new absl::flat_hash_map<Key, const Builtin*>();
    for (const auto& rows :
         {ObjectBuiltins(), SequenceBuiltins(), TextBuiltins(), ValueBuiltins()}) {
      for (const Builtin& row : rows) builtins->emplace(Key(row.kind, row.name), &row);
    }
    return builtins;
  }();
  // Finding hashes all of the name, which may be megabytes of somebody's text.
  constexpr size_t kMaxNameBytes = 64;
  if (name.size() > kMaxNameBytes) return nullptr;
  const auto it = table->find(Key(kind, name));
  return it == table->end() ? nullptr : it->second;
}

absl::StatusOr<Value> CallBuiltin(const Builtin& builtin, const Value& self,
                                  const Arguments& arguments, Arena& arena) {
  LK_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::Bind(arguments, builtin));
  return builtin.call(self, bound, arena);
}

}  // namespace lowkey::jinja
