#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

std::optional<int64_t> Value::AsInt() const {
  if (const auto* value = std::get_if<int64_t>(&data_)) return *value;
  if (const auto* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::AsNumber() const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  const std::optional<int64_t> integer = AsInt();
  if (!integer.has_value()) return std::nullopt;
  return static_cast<double>(*integer);
}

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (const std::optional<double> number = AsNumber()) return *number != 0;
  if (const Text* text = AsText()) return text->size() > 0;
  if (const List* list = AsList()) return !list->items.empty();
  if (const Dict* dict = AsDict()) return !dict->entries().empty();
  return true;
}

std::string_view Value::TypeName() const {
  struct Namer {
    std::string_view operator()(Undefined) const { return "undefined"; }
    std::string_view operator()(None) const { return "None"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(int64_t) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const Text*) const { return "str"; }
    std::string_view operator()(const List* list) const {
      return list->is_tuple ? "tuple" : "list";
    }
    std::string_view operator()(const Dict*) const { return "dict"; }
    std::string_view operator()(Namespace*) const { return "namespace"; }
    std::string_view operator()(const Method*) const { return "method"; }
    std::string_view operator()(const Macro*) const { return "macro"; }
    std::string_view operator()(const Loop*) const { return "loop"; }
    std::string_view operator()(Function) const { return "function"; }
  };
  return std::visit(Namer(), data_);
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&other](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        if constexpr (std::is_same_v<T, Undefined> || std::is_same_v<T, None>) {
          return true;
        } else {
          return mine == std::get<T>(other.data_);
        }
      },
      data_);
}

void Dict::Set(const Text* key, Value value) {
  const auto [it, is_new] = index_.try_emplace(key->bytes(), entries_.size());
  if (is_new) {
    entries_.push_back({key, value});
  } else {
    entries_[it->second].value = value;
  }
}

const Value* Dict::Find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].value;
}

}  // namespace lowkey::jinja
