#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_BUILTINS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_BUILTINS_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// The arguments of one call.
struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string_view, Value>> named = {};
};

class BoundArguments;

// A filter, test, function or method, as jinja2, transformers and Python define it.
struct Builtin {
  enum class Kind { kFilter, kTest, kFunction, kTextMethod, kDictMethod, kListMethod, kLoopMethod };
  // `self` is the input of a filter, the subject of a test or the receiver of a method, whose type
  // is then right; a function has none. A test returns a bool. INVALID_ARGUMENT: arguments or an
  // input that the builtin does not take, or the message of raise_exception; the arena's errors.
  using Call = absl::StatusOr<Value> (*)(const Value& self, const BoundArguments& bound,
                                         Arena& arena);

  Kind kind;
  std::string_view name;
  Call call;  // null: Python has the method, but templates may not call it
  std::array<std::string_view, 4> parameters = {};  // the names, or kAnyArguments
  size_t n_required = 0;                            // the first so many parameters
};

inline constexpr std::string_view kAnyArguments = "*";

// The values of a call's parameters. An argument that was not given is undefined.
class BoundArguments {
 public:
  // INVALID_ARGUMENT: too many, an unknown name, one given twice, or a required one missing.
  // `arguments` must outlive the result.
  static absl::StatusOr<BoundArguments> Bind(const Arguments& arguments, const Builtin& builtin);

  const Arguments& given() const { return *given_; }
  const Value& operator[](size_t i) const { return values_[i]; }
  bool Has(size_t i) const { return !values_[i].is_undefined(); }

  // INVALID_ARGUMENT, naming the parameter, when it is of another type. nullopt or null: not given,
  // or None.
  absl::StatusOr<std::optional<int64_t>> Int(size_t i) const;
  absl::StatusOr<const Text*> String(size_t i) const;
  bool IsTrue(size_t i) const { return values_[i].IsTrue(); }

 private:
  BoundArguments(const Arguments& given, const Builtin& builtin)
      : given_(&given), builtin_(&builtin) {}

  absl::Status WrongType(size_t i, std::string_view expected) const;

  const Arguments* given_;
  const Builtin* builtin_;
  std::array<Value, 4> values_;
};

// Returns null when there is none of that name.
const Builtin* FindBuiltin(Builtin::Kind kind, std::string_view name);

// Binds the arguments to the parameters and calls the builtin. Returns the errors of both.
absl::StatusOr<Value> CallBuiltin(const Builtin& builtin, const Value& self,
                                  const Arguments& arguments, Arena& arena);

// The rows of FindBuiltin's table, by the values that most of them work on.
absl::Span<const Builtin> ObjectBuiltins();
absl::Span<const Builtin> SequenceBuiltins();
absl::Span<const Builtin> TextBuiltins();
absl::Span<const Builtin> ValueBuiltins();

// Returns value.name: a method of its type, an attribute of a namespace or loop, else value[name];
// undefined where there is none. INVALID_ARGUMENT: `value` is undefined (names it), or templates
// may not call the method.
absl::StatusOr<Value> GetAttribute(const Value& value, const Text& name, Arena& arena);

// Returns value[key]: an item, else an attribute. The same errors.
absl::StatusOr<Value> GetSubscript(const Value& value, const Value& key, Arena& arena);

// Returns the error "'x' is undefined".
absl::Status UndefinedError(const Value& value);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_BUILTINS_H_
