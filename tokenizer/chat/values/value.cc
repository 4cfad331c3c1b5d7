#include "tokenizer/chat/values/value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::jinja {
namespace {

// The charges for a value where it is held, and for the objects behind it.
constexpr size_t kValueBytes = 16;
constexpr size_t kObjectBytes = 64;
constexpr size_t kEntryBytes = 96;

int DepthOf(const Value& value) {
  if (const List* list = value.AsList()) return list->depth;
  if (const Dict* dict = value.AsDict()) return dict->depth;
  return 0;
}

}  // namespace

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
  // By the index of the alternative in Data.
  constexpr std::string_view kNames[] = {"undefined", "None", "bool",    "int",       "float",
                                         "str",       "list", "dict",    "namespace", "method",
                                         "macro",     "loop", "function"};
  static_assert(std::size(kNames) == std::variant_size_v<Data>);
  const List* list = AsList();
  return list != nullptr && list->is_tuple ? "tuple" : kNames[data_.index()];
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

absl::Status Arena::ChargeStep() {
  if (++n_steps_ <= limits_.max_steps) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", limits_.max_steps, " steps, expected a template that ends"));
}

absl::Status Arena::ChargeBytes(size_t n_bytes) {
  if (n_bytes <= limits_.max_work_bytes - n_work_bytes_) {
    n_work_bytes_ += n_bytes;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", limits_.max_work_bytes, " bytes worked on"));
}

absl::Status Arena::CheckDepth(int depth) const {
  if (depth <= limits_.max_value_depth) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "lists and dicts nested ", depth, " deep, expected at most ", limits_.max_value_depth));
}

absl::StatusOr<Value> Arena::MakeText(Text text) {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes + text.held_bytes()));
  return Value(&texts_.emplace_back(std::move(text)));
}

absl::StatusOr<Value> Arena::MakeSequence(List list) {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes + kValueBytes * list.items.size()));
  for (const Value& item : list.items) list.depth = std::max(list.depth, 1 + DepthOf(item));
  LK_RETURN_IF_ERROR(CheckDepth(list.depth));
  return Value(&lists_.emplace_back(std::move(list)));
}

absl::StatusOr<Value> Arena::MakeDict(Dict dict) {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes + kEntryBytes * dict.entries().size()));
  for (const Dict::Entry& entry : dict.entries()) {
    dict.depth = std::max(dict.depth, 1 + DepthOf(entry.value));
  }
  LK_RETURN_IF_ERROR(CheckDepth(dict.depth));
  return Value(&dicts_.emplace_back(std::move(dict)));
}

absl::StatusOr<Namespace*> Arena::MakeNamespace() {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes));
  return &namespaces_.emplace_back();
}

absl::StatusOr<Value> Arena::MakeMethod(Value receiver, const Builtin* method) {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes));
  return Value(&methods_.emplace_back(Method{receiver, method}));
}

}  // namespace lowkey::jinja
