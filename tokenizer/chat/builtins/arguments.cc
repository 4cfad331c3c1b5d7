#include "tokenizer/chat/builtins/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lowkey::jinja {

absl::StatusOr<BoundArguments> BoundArguments::Bind(const Arguments& arguments,
                                                    std::initializer_list<std::string_view> names,
                                                    size_t n_required) {
  BoundArguments bound;
  bound.names_ = names;
  bound.values_.resize(names.size());
  std::vector<bool> is_given(names.size());
  if (arguments.positional.size() > names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.positional.size(), " arguments, expected at most ", names.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = arguments.positional[i];
    is_given[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const size_t i = static_cast<size_t>(std::find(bound.names_.begin(), bound.names_.end(), name) -
                                         bound.names_.begin());
    if (i == names.size() || is_given[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", std::string(name),
                       i == names.size() ? ": not known here" : ": given twice"));
    }
    bound.values_[i] = value;
    is_given[i] = true;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!is_given[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", std::string(bound.names_[i]), ": missing"));
    }
  }
  return bound;
}

absl::Status BoundArguments::WrongType(size_t i, std::string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat("argument ", std::string(names_[i]), ": ",
                                                 std::string(values_[i].TypeName()), ", expected ",
                                                 std::string(expected)));
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

}  // namespace lowkey::jinja
