#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tokenizer/chat/values/text.h"

namespace lowkey::jinja {

class Value;
class Dict;
struct List;
struct Namespace;
struct Method;
struct Builtin;
struct Macro;
struct Loop;

// The value of a name that nobody set. It prints as nothing; using it is an error that names it.
struct Undefined {
  const std::string* name = nullptr;  // null: not known
};

struct None {};

// A Python value as templates see it. Small and trivially copied: what it points to belongs to an
// Arena or to the parsed template.
class Value {
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, const Text*, const List*, const Dict*,
                   Namespace*, const Method*, const Macro*, const Loop*, const Builtin*>;

 public:
  Value() = default;  // undefined
  template <typename T>
  requires std::is_constructible_v<Data, T> Value(T value) : data_(value) {}

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  // These return null, or nullopt, when the value is something else.
  const Text* AsText() const { return Get<const Text*>(); }
  const List* AsList() const { return Get<const List*>(); }
  const Dict* AsDict() const { return Get<const Dict*>(); }
  Namespace* AsNamespace() const { return Get<Namespace*>(); }
  const Builtin* AsFunction() const { return Get<const Builtin*>(); }
  const Method* AsMethod() const { return Get<const Method*>(); }
  const Macro* AsMacro() const { return Get<const Macro*>(); }
  const Loop* AsLoop() const { return Get<const Loop*>(); }
  // Booleans are integers in Python.
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsNumber() const;
  template <typename T>
  std::optional<T> AsExactly() const {
    const T* value = std::get_if<T>(&data_);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  // Returns Python's bool(x).
  bool IsTrue() const;
  // Returns Python's name of the type: "str".
  std::string_view TypeName() const;
  // Returns whether both are the same object or equal constants.
  bool IsSame(const Value& other) const;

 private:
  template <typename T>
  T Get() const {
    const T* value = std::get_if<T>(&data_);
    return value == nullptr ? nullptr : *value;
  }

  Data data_;
};

// Lists and tuples. Immutable once made: templates may not change them.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // 1 + the deepest of its items
};

// Keeps keys in the order in which they were set first. Immutable once made.
class Dict {
 public:
  struct Entry {
    const Text* key;
    Value value;
  };

  // A key that was set before keeps its place and gets the new value.
  void Set(const Text* key, Value value);
  const Value* Find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }

  int depth = 1;

 private:
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string_view, size_t> index_;
};

// The one thing that templates may change.
struct Namespace {
  absl::flat_hash_map<std::string, Value> attributes;
};

// A method with the value that it is called on.
struct Method {
  Value receiver;
  const Builtin* method;
};

struct Loop {
  const std::vector<Value>* items;
  size_t index0 = 0;
  int depth = 1;  // 1: not inside another loop
};

// The limits of one rendering.
struct Limits {
  size_t max_steps = 1'000'000;              // expressions and statements evaluated
  size_t max_work_bytes = size_t{64} << 20;  // read or made by all of them together
  size_t max_output_bytes = size_t{4} << 20;
  int max_depth = 200;       // nested expressions, statements and macro calls
  int max_value_depth = 64;  // lists and dicts in each other
};

// The time that strftime_now shows.
struct Clock {
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
};

// A visit of one value is charged this much, besides the bytes of a string.
inline constexpr size_t kVisitBytes = 64;

// Owns the values that one rendering makes, until the end, and counts its costs. All errors are
// RESOURCE_EXHAUSTED and name the limit. Not thread-safe.
class Arena {
 public:
  explicit Arena(const Limits& limits, const Clock& clock = {}) : limits_(limits), clock_(clock) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Call these before the work or the allocation is done.
  absl::Status ChargeStep();
  absl::Status ChargeBytes(size_t n_bytes);

  // These charge for the memory that they take.
  absl::StatusOr<Value> MakeText(Text text);
  absl::StatusOr<Value> MakeText(std::string template_bytes) {
    return MakeText(Text(std::move(template_bytes)));
  }
  absl::StatusOr<Value> MakeList(std::vector<Value> items) {
    return MakeSequence({std::move(items)});
  }
  absl::StatusOr<Value> MakeTuple(std::vector<Value> items) {
    return MakeSequence({std::move(items), /*is_tuple=*/true});
  }
  absl::StatusOr<Value> MakeSequence(List list);
  absl::StatusOr<Value> MakeDict(Dict dict);
  absl::StatusOr<Namespace*> MakeNamespace();
  absl::StatusOr<Value> MakeMethod(Value receiver, const Builtin* method);

  const Limits& limits() const { return limits_; }
  const Clock& clock() const { return clock_; }

 private:
  absl::Status CheckDepth(int depth) const;

  const Limits limits_;
  const Clock clock_;
  size_t n_steps_ = 0;
  size_t n_work_bytes_ = 0;
  // Addresses must not change.
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Method> methods_;
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_
