#include "tokenizer/json.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Json = nlohmann::json;

// How deep brackets outside strings nest. Known before parsing: a nested value takes far more
// memory than its brackets.
int Depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

std::string ShortText(const Json& value) {
  if (value.is_structured()) return value.type_name();
  constexpr size_t kMaxBytes = 64;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

}  // namespace

absl::StatusOr<Json> ParseJsonObject(std::string_view text, const std::string& name) {
  if (const int depth = Depth(text); depth > kMaxJsonDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": nested ", depth, " levels deep, expected at most ", kMaxJsonDepth));
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not JSON, expected a JSON object"));
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", json.type_name(), ", expected a JSON object"));
  }
  return json;
}

std::optional<JsonValue> JsonValue::Find(const std::string& key) const {
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonValue(*it, absl::StrCat(way_, way_.ends_with(": ") ? "" : ".", key));
}

absl::StatusOr<JsonValue> JsonValue::Get(const std::string& key) const {
  std::optional<JsonValue> found = Find(key);
  if (found.has_value()) return *std::move(found);
  return Error(absl::StrCat("an object with ", key));
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::Items() const {
  if (!value_->is_array()) return Error("an array");
  std::vector<JsonValue> items;
  items.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    items.emplace_back((*value_)[i], absl::StrCat(way_, "[", i, "]"));
  }
  return items;
}

absl::StatusOr<std::string> JsonValue::Text() const {
  const auto* const text = value_->get_ptr<const std::string*>();
  if (text == nullptr) return Error("a string");
  return *text;
}

absl::StatusOr<bool> JsonValue::Flag() const {
  const auto* const flag = value_->get_ptr<const bool*>();
  if (flag == nullptr) return Error("true or false");
  return *flag;
}

absl::StatusOr<int32_t> JsonValue::Id() const {
  // Converting is safe for any integer; one over 2^63 comes out negative.
  const int64_t id = value_->is_number_integer() ? value_->get<int64_t>() : -1;
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) return Error("a token id from 0");
  return static_cast<int32_t>(id);
}

absl::StatusOr<std::string> JsonValue::Text(const std::string& key) const {
  LK_ASSIGN_OR_RETURN(const JsonValue value, Get(key));
  return value.Text();
}

absl::StatusOr<bool> JsonValue::Flag(const std::string& key) const {
  LK_ASSIGN_OR_RETURN(const JsonValue value, Get(key));
  return value.Flag();
}

absl::StatusOr<bool> JsonValue::FlagOr(const std::string& key, bool missing) const {
  const std::optional<JsonValue> value = Find(key);
  return value.has_value() ? value->Flag() : missing;
}

absl::Status JsonValue::Error(const std::string& expected) const {
  return absl::InvalidArgumentError(absl::StrCat(way_, way_.ends_with(": ") ? "" : ": ",
                                                 ShortText(*value_), ", expected ", expected));
}

absl::Status JsonValue::Unsupported() const {
  return absl::UnimplementedError(
      absl::StrCat(way_, ": ", ShortText(*value_), " is not supported"));
}

}  // namespace lowkey
