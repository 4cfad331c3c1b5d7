#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_ARGUMENTS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_ARGUMENTS_H_

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/chat/values/arena.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// What a call was given.
struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string_view, Value>> named = {};
};

// The values of a call's parameters. An argument that was not given is undefined.
class BoundArguments {
 public:
  // INVALID_ARGUMENT: too many, an unknown name, one given twice, or not the first `n_required`.
  static absl::StatusOr<BoundArguments> Bind(const Arguments& arguments,
                                             std::initializer_list<std::string_view> names,
                                             size_t n_required = 0);

  const Value& operator[](size_t i) const { return values_[i]; }
  bool Has(size_t i) const { return !values_[i].is_undefined(); }

  // INVALID_ARGUMENT, naming the parameter, when it is of another type. nullopt or null: not given,
  // or None.
  absl::StatusOr<std::optional<int64_t>> Int(size_t i) const;
  absl::StatusOr<const Text*> String(size_t i) const;
  bool IsTrue(size_t i) const { return values_[i].IsTrue(); }

 private:
  absl::Status WrongType(size_t i, std::string_view expected) const;

  std::vector<std::string_view> names_;
  std::vector<Value> values_;
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_ARGUMENTS_H_
