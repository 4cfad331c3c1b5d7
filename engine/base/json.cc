#include "engine/base/json.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

// The charges for a value, for what a string, list or object holds besides its contents, and for a
// member of an object.
constexpr size_t kValueBytes = 48;
constexpr size_t kContainerBytes = 48;
constexpr size_t kMemberBytes = 96;

// Returns "at line 1, column 7: while parsing value - unexpected end of input; ..." of the parser's
// message, without the token that it read last: that one may be long, and is not always UTF-8.
// Numbers that are too large have a message without a position.
std::string WhyNotJson(size_t position, const std::string& last_token, std::string_view message) {
  constexpr std::string_view kBegin = " parse error ", kKind = "syntax error ",
                             kLast = "; last read: '";
  const size_t begin = message.find(kBegin);
  if (begin == std::string_view::npos)
    return absl::StrCat("at byte ", position, ": number overflow");
  message.remove_prefix(begin + kBegin.size());
  std::string_view after;
  if (const size_t at = message.find(kLast); at != std::string_view::npos) {
    after = message.substr(std::min(message.size(), at + kLast.size() + last_token.size() + 1));
    message = message.substr(0, at);
  }
  std::string why(message);
  why += after;
  if (const size_t at = why.find(kKind); at != std::string::npos) why.erase(at, kKind.size());
  return why;
}

// Builds the document as the parser meets it. The library's own builder takes the last of two equal
// keys and any depth, and a deep document takes far more memory than its brackets.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(const std::string& name, LoadAccount& account, int max_depth)
      : name_(name), account_(account), max_depth_(max_depth) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override {
    return Charge(kContainerBytes + value.size()) && Add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& key) override {
    if (!Charge(kMemberBytes + key.size())) return false;
    auto [it, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(key));
    member_ = &it->second;
    return is_new || Fail(absl::StrCat("key ", ShortText(it->first), " appears twice"));
  }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    return Fail(absl::StrCat("not JSON ", WhyNotJson(position, last_token, error.what())));
  }

  absl::StatusOr<json> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  bool Fail(const std::string& problem) {
    status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": ", problem));
    return false;
  }

  bool Charge(size_t n_bytes) {
    status_ = account_.Charge(name_, n_bytes);
    return status_.ok();
  }

  json& Place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }
  bool Add(json value) {
    if (!Charge(kValueBytes)) return false;
    Place(std::move(value));
    return true;
  }
  bool Open(json container) {
    if (open_.size() >= static_cast<size_t>(max_depth_)) {
      return Fail(absl::StrCat("nested deeper than ", max_depth_, " levels"));
    }
    if (!Charge(kValueBytes + kContainerBytes)) return false;
    open_.push_back(&Place(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& name_;
  LoadAccount& account_;
  const int max_depth_;
  json root_;
  // The open containers, outermost first: nothing is added to one while another is open in it, so
  // that none of them moves.
  std::vector<json*> open_;
  json* member_ = nullptr;  // the value of the last key of the innermost object
  absl::Status status_;
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

std::string Described(const json& value) {
  if (value.is_array()) return absl::StrCat("an array of ", value.size());
  return value.is_object() ? "an object" : ShortText(value);
}

absl::StatusOr<json> ParseJsonObject(std::string_view text, const std::string& name,
                                     int max_depth) {
  LoadAccount account;
  return ParseJsonObject(text, name, account, max_depth);
}

absl::StatusOr<json> ParseJsonObject(std::string_view text, const std::string& name,
                                     LoadAccount& account, int max_depth) {
  LK_RETURN_IF_ERROR(account.Charge(name, text.size()));
  Builder builder(name, account, max_depth);
  json::sax_parse(text.begin(), text.end(), &builder);
  LK_ASSIGN_OR_RETURN(json value, builder.Take());
  if (value.is_object()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", value.type_name(), ", expected a JSON object"));
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

std::optional<JsonValue> JsonValue::Find(const std::string& key) const {
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return JsonValue(*it, absl::StrCat(path_, path_.ends_with(": ") ? "" : ".", key));
}

absl::StatusOr<JsonValue> JsonValue::Get(const std::string& key) const {
  std::optional<JsonValue> found = Find(key);
  if (found.has_value()) return *std::move(found);
  return Error(absl::StrCat("an object with ", key));
}

absl::StatusOr<std::vector<JsonValue>> JsonValue::Items() const {
  if (!value_->is_array()) return Error("an array");
  if (value_->size() > kMaxItems) return Error(absl::StrCat("at most ", kMaxItems, " items"));
  std::vector<JsonValue> items;
  items.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    items.emplace_back((*value_)[i], absl::StrCat(path_, "[", i, "]"));
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

absl::StatusOr<std::vector<JsonValue>> JsonValue::Items(const std::string& key) const {
  LK_ASSIGN_OR_RETURN(const JsonValue value, Get(key));
  return value.Items();
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
  return absl::InvalidArgumentError(absl::StrCat(path_, path_.ends_with(": ") ? "" : ": ",
                                                 Described(*value_), ", expected ", expected));
}

absl::Status JsonValue::Unsupported() const {
  return absl::UnimplementedError(
      absl::StrCat(path_, ": ", Described(*value_), " is not supported"));
}

}  // namespace lowkey
