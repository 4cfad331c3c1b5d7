#include "engine/loader/json_fields.h"

#include <cmath>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

// Watches the parser: the library itself takes the last of two equal keys and any depth.
class Watcher {
 public:
  explicit Watcher(int max_depth) : max_depth_(max_depth) {}

  // False: drop this value.
  bool See(int depth, json::parse_event_t event, const json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        keys_.emplace_back();
        too_deep_ |= depth >= max_depth_;
        return !too_deep_;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        if (!keys_.empty()) keys_.pop_back();
        return true;
      case json::parse_event_t::key:
        SeeKey(value);
        return true;
      case json::parse_event_t::value:
        return true;
    }
    return true;
  }

  bool too_deep() const { return too_deep_; }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  void SeeKey(const json& value) {
    const std::string* key = value.get_ptr<const std::string*>();
    if (key == nullptr || keys_.empty() || too_deep_) return;
    if (!keys_.back().insert(*key).second) duplicate_ = *key;
  }

  const int max_depth_;
  bool too_deep_ = false;
  std::optional<std::string> duplicate_;
  std::vector<absl::flat_hash_set<std::string>> keys_;  // of the open objects
};

std::string RangeText(Range<int64_t> range) { return absl::StrCat(range.min, "..", range.max); }
std::string RangeText(Range<double> range) {
  return absl::StrCat("a number in ", range.min, "..", range.max);
}

}  // namespace

std::string ShortText(const json& value) {
  constexpr size_t kMaxBytes = 80;
  // Nested values are not printed: they may be large.
  if (value.is_structured() && value.size() > 8) return value.is_array() ? "[...]" : "{...}";
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

absl::StatusOr<json> ParseJsonObject(std::string_view text, const std::string& name,
                                     int max_depth) {
  Watcher watcher(max_depth);
  json value = json::parse(
      text.begin(), text.end(),
      [&](int depth, json::parse_event_t event, json& parsed) {
        return watcher.See(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  if (watcher.too_deep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": nested deeper than ", max_depth, " levels"));
  }
  if (watcher.duplicate().has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": key ", ShortText(*watcher.duplicate()), " appears twice"));
  }
  if (value.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(name, ": not JSON"));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", value.type_name(), ", expected a JSON object"));
  }
  return value;
}

const json* JsonFields::Find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status JsonFields::Error(const char* key, const std::string& expected) const {
  const auto it = object_.find(key);
  const std::string actual = it == object_.end() ? "missing" : ShortText(*it);
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": ", key, ": ", actual, ", expected ", expected));
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Int(const char* key,
                                                       Range<int64_t> range) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  // Unsigned numbers over int64's largest are out of every range.
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!fits || value->get<int64_t>() < range.min || value->get<int64_t>() > range.max) {
    return Error(key, RangeText(range));
  }
  return value->get<int64_t>();
}

absl::StatusOr<std::optional<double>> JsonFields::Number(const char* key,
                                                         Range<double> range) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return Error(key, RangeText(range));
  const double number = value->get<double>();
  if (!(number >= range.min && number <= range.max)) return Error(key, RangeText(range));
  return number;
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Error(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Error(key, "a string");
  return value->get<std::string>();
}

absl::StatusOr<std::optional<JsonFields>> JsonFields::Object(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return Error(key, "an object or null");
  return JsonFields(*value, absl::StrCat(name_, ": ", key));
}

absl::StatusOr<int64_t> JsonFields::RequiredInt(const char* key, Range<int64_t> range) const {
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> value, Int(key, range));
  if (!value.has_value()) return Error(key, RangeText(range));
  return *value;
}

absl::StatusOr<double> JsonFields::RequiredNumber(const char* key, Range<double> range) const {
  LK_ASSIGN_OR_RETURN(const std::optional<double> value, Number(key, range));
  if (!value.has_value()) return Error(key, RangeText(range));
  return *value;
}

}  // namespace lowkey
