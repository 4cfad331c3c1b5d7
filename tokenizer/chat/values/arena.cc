#include "tokenizer/chat/values/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::jinja {
namespace {

// About what a value costs where it is held, and what the objects behind it cost.
constexpr size_t kValueBytes = 16;
constexpr size_t kObjectBytes = 64;
constexpr size_t kEntryBytes = 64;

int DepthOf(const Value& value) {
  if (const List* list = value.AsList()) return list->depth;
  if (const Dict* dict = value.AsDict()) return dict->depth;
  return 0;
}

}  // namespace

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
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes + text.size()));
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

absl::StatusOr<Value> Arena::MakeMethod(Value receiver, std::string_view name) {
  LK_RETURN_IF_ERROR(ChargeBytes(kObjectBytes));
  return Value(&methods_.emplace_back(Method{receiver, name}));
}

}  // namespace lowkey::jinja
