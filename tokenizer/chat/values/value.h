#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/chat/values/text.h"

namespace lowkey::jinja {

class Value;
class Dict;
struct List;
struct Namespace;
struct Method;
struct Macro;
struct Loop;

// What a name that nobody set stands for. Prints as nothing; using it is an error that names it.
struct Undefined {
  const std::string* name = nullptr;  // null: not known
};

struct None {};

// What a template can call by name.
enum class Function { kRange, kNamespace, kDict, kRaiseException, kStrftimeNow };

// A Python value as templates see it. Small and trivially copied: what it points to belongs to an
// Arena or to the parsed template.
class Value {
 public:
  Value() = default;  // undefined
  Value(Undefined undefined) : data_(undefined) {}
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const Text* text) : data_(text) {}
  Value(const List* list) : data_(list) {}
  Value(const Dict* dict) : data_(dict) {}
  Value(Namespace* space) : data_(space) {}
  Value(const Method* method) : data_(method) {}
  Value(const Macro* macro) : data_(macro) {}
  Value(const Loop* loop) : data_(loop) {}
  Value(Function function) : data_(function) {}

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  // Null, or nullopt, when it is something else.
  const Text* AsText() const { return Get<const Text*>(); }
  const List* AsList() const { return Get<const List*>(); }
  const Dict* AsDict() const { return Get<const Dict*>(); }
  Namespace* AsNamespace() const { return Get<Namespace*>(); }
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
  // Python's bool(x).
  bool IsTrue() const;
  // Python's name of its type: "str".
  std::string_view TypeName() const;
  // Whether it is the same object, or an equal constant.
  bool IsSame(const Value& other) const;

 private:
  template <typename T>
  T Get() const {
    const T* value = std::get_if<T>(&data_);
    return value == nullptr ? nullptr : *value;
  }

  std::variant<Undefined, None, bool, int64_t, double, const Text*, const List*, const Dict*,
               Namespace*, const Method*, const Macro*, const Loop*, Function>
      data_;
};

// Lists and tuples. Immutable once made: templates may not change them.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // 1 + the deepest of its items
};

// Keys in the order in which they were set first. Immutable once made.
class Dict {
 public:
  struct Entry {
    const Text* key;
    Value value;
  };

  // A key that is there already keeps its place and gets the new value.
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
  std::string_view name;  // a constant
};

struct Loop {
  const std::vector<Value>* items;
  size_t index0 = 0;
  int depth = 1;  // 1: not inside another loop
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_VALUE_H_
