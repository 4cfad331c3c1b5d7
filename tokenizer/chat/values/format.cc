#include "tokenizer/chat/values/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey::jinja {
namespace {

// Python prints some characters of strings in lists as escapes.
void AppendQuoted(std::string_view text, std::string& out) {
  const bool is_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = is_double ? '"' : '\'';
  constexpr std::string_view kEscaped = "\n\r\t", kNames = "nrt";
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const size_t escape = kEscaped.find(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (escape != std::string_view::npos) {
      out += {'\\', kNames[escape]};
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  out += quote;
}

void AppendJsonEscape(char32_t code_point, std::string& out) {
  if (code_point >= 0x10000) {
    absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + ((code_point - 0x10000) >> 10),
                          0xDC00 + ((code_point - 0x10000) & 0x3FF));
  } else {
    absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(code_point));
  }
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = CharacterBytes(text, at);
    const char32_t code_point = CodePointAt(text, at);
    const size_t escape = n_bytes == 1 ? kEscaped.find(text[at]) : std::string_view::npos;
    if (escape != std::string_view::npos) {
      out += {'\\', kNames[escape]};
    } else if (code_point < 0x20 || (ensure_ascii && code_point >= 0x7F)) {
      AppendJsonEscape(code_point, out);
    } else {
      out += text.substr(at, n_bytes);
    }
    at += n_bytes;
  }
  out += '"';
}

// Writes lists and dicts for printing (repr) and for JSON.
class Writer {
 public:
  Writer(Arena& arena, const JsonOptions* json) : arena_(arena), json_(json) {}

  absl::Status Write(const Value& value) {
    LK_RETURN_IF_ERROR(arena_.ChargeBytes(kVisitBytes));
    if (const Text* text = value.AsText()) return WriteText(*text);
    if (const List* list = value.AsList()) return WriteList(*list);
    if (const Dict* dict = value.AsDict()) return WriteDict(*dict);
    const std::optional<std::string> scalar = ScalarText(value);
    if (!scalar.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(value.TypeName()),
                                                     " cannot be written as ",
                                                     json_ == nullptr ? "text" : "JSON"));
    }
    out_ += *scalar;
    return absl::OkStatus();
  }

  Text Take() { return has_user_bytes_ ? Text::FromUser(std::move(out_)) : Text(std::move(out_)); }

 private:
  std::optional<std::string> ScalarText(const Value& value) const {
    const bool is_json = json_ != nullptr;
    if (value.is_none()) return is_json ? "null" : "None";
    if (const auto truth = value.AsExactly<bool>()) {
      if (is_json) return *truth ? "true" : "false";
      return *truth ? "True" : "False";
    }
    if (const auto integer = value.AsExactly<int64_t>()) return absl::StrCat(*integer);
    if (const auto number = value.AsExactly<double>()) {
      if (is_json && std::isnan(*number)) return "NaN";
      if (is_json && std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
      return FloatText(*number);
    }
    if (is_json) return std::nullopt;
    return value.is_undefined() ? "Undefined"
                                : absl::StrCat("<", std::string(value.TypeName()), ">");
  }

  absl::Status WriteText(const Text& text) {
    // An escape takes up to six bytes.
    LK_RETURN_IF_ERROR(arena_.ChargeBytes(6 * text.size()));
    has_user_bytes_ = has_user_bytes_ || text.has_user_bytes();
    if (json_ == nullptr) {
      AppendQuoted(text.bytes(), out_);
    } else {
      AppendJsonString(text.bytes(), json_->ensure_ascii, out_);
    }
    return absl::OkStatus();
  }

  absl::Status WriteList(const List& list) {
    const bool is_tuple = list.is_tuple && json_ == nullptr;
    out_ += is_tuple ? '(' : '[';
    ++depth_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      LK_RETURN_IF_ERROR(BeginItem(i));
      LK_RETURN_IF_ERROR(Write(list.items[i]));
    }
    LK_RETURN_IF_ERROR(EndItems(list.items.size()));
    if (is_tuple && list.items.size() == 1) out_ += ',';
    out_ += is_tuple ? ')' : ']';
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict) {
    std::vector<Dict::Entry> entries = dict.entries();
    if (json_ != nullptr && json_->sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return a.key->bytes() < b.key->bytes();
      });
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      LK_RETURN_IF_ERROR(BeginItem(i));
      LK_RETURN_IF_ERROR(WriteText(*entries[i].key));
      const std::string_view separator =
          json_ == nullptr ? std::string_view(": ") : json_->key_separator;
      LK_RETURN_IF_ERROR(arena_.ChargeBytes(separator.size()));
      out_ += separator;
      LK_RETURN_IF_ERROR(Write(entries[i].value));
    }
    LK_RETURN_IF_ERROR(EndItems(entries.size()));
    out_ += '}';
    return absl::OkStatus();
  }

  absl::Status BeginItem(size_t index) {
    const bool is_indented = json_ != nullptr && json_->indent.has_value();
    std::string separator = is_indented ? "," : ", ";
    if (json_ != nullptr && json_->item_separator.has_value()) separator = *json_->item_separator;
    LK_RETURN_IF_ERROR(arena_.ChargeBytes(separator.size()));
    if (index > 0) out_ += separator;
    return NewLine();
  }

  absl::Status EndItems(size_t n) {
    --depth_;
    return n > 0 ? NewLine() : absl::OkStatus();
  }

  absl::Status NewLine() {
    if (json_ == nullptr || !json_->indent.has_value()) return absl::OkStatus();
    LK_RETURN_IF_ERROR(arena_.ChargeBytes(depth_ * json_->indent->size()));
    out_ += '\n';
    for (size_t i = 0; i < depth_; ++i) out_ += *json_->indent;
    return absl::OkStatus();
  }

  Arena& arena_;
  const JsonOptions* const json_;  // null: as Python prints
  std::string out_;
  size_t depth_ = 0;
  bool has_user_bytes_ = false;
};

// Builds values as the parser meets them: nobody bounds the depth of the library's own tree.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Arena& arena) : arena_(arena) {}

  bool null() override { return Add(Value(None())); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(int64_t value) override { return Add(Value(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Fail(TooLarge(absl::StrCat(value)));
    return Add(Value(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& spelled) override {
    // The library turns integers that are too large into floats.
    if (spelled.find_first_of(".eE") == std::string::npos) return Fail(TooLarge(spelled));
    return Add(Value(value));
  }
  bool string(std::string& value) override {
    const absl::StatusOr<Value> text = arena_.MakeText(Text::FromUser(std::move(value)));
    return text.ok() ? Add(*text) : Fail(text.status());
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return Open({.is_object = true}); }
  bool start_array(size_t) override { return Open({.is_object = false}); }
  bool key(std::string& name) override {
    const absl::StatusOr<Value> text = arena_.MakeText(Text::FromUser(std::move(name)));
    if (!text.ok()) return Fail(text.status());
    open_.back().key = text->AsText();
    return true;
  }
  bool end_object() override {
    const absl::StatusOr<Value> dict = arena_.MakeDict(std::move(open_.back().dict));
    return Close(dict);
  }
  bool end_array() override {
    const absl::StatusOr<Value> list = arena_.MakeList(std::move(open_.back().items));
    return Close(list);
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("byte ", position, ": malformed, expected a JSON document")));
  }

  absl::StatusOr<Value> Take() {
    if (!status_.ok()) return status_;
    return result_;
  }

 private:
  struct OpenValue {
    bool is_object = false;
    const Text* key = nullptr;
    Dict dict = {};
    std::vector<Value> items = {};
  };

  static absl::Status TooLarge(const std::string& number) {
    return absl::InvalidArgumentError(absl::StrCat(number, ": an integer over 64 bits"));
  }
  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().is_object) {
      open_.back().dict.Set(open_.back().key, value);
    } else {
      open_.back().items.push_back(value);
    }
    return true;
  }
  bool Open(OpenValue container) {
    if (open_.size() >= static_cast<size_t>(arena_.limits().max_value_depth)) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(
          "nested over ", arena_.limits().max_value_depth, " deep, expected at most that")));
    }
    open_.push_back(std::move(container));
    return true;
  }
  bool Close(const absl::StatusOr<Value>& value) {
    open_.pop_back();
    return value.ok() ? Add(*value) : Fail(value.status());
  }

  Arena& arena_;
  std::vector<OpenValue> open_;
  Value result_;
  absl::Status status_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);  // "-1.25e+07": the fewest digits that give `value`
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const size_t n_digits = e - (scientific[0] == '-' ? 1 : 0) - (e > 2 ? 1 : 0);
  const int n_decimals = std::max(static_cast<int>(n_digits) - 1 - exponent, 1);
  return absl::StrFormat("%.*f", n_decimals, value);
}

absl::StatusOr<Text> ToText(const Value& value, Arena& arena) {
  if (value.is_undefined()) return Text();
  if (const Text* text = value.AsText()) {
    LK_RETURN_IF_ERROR(arena.ChargeBytes(text->held_bytes()));
    return *text;
  }
  Writer writer(arena, nullptr);
  LK_RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<Text> ToJson(const Value& value, const JsonOptions& options, Arena& arena) {
  Writer writer(arena, &options);
  LK_RETURN_IF_ERROR(writer.Write(value));
  return writer.Take();
}

absl::StatusOr<Value> FromJson(std::string_view json, Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(json.size()));
  Builder builder(arena);
  const bool is_whole = nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  absl::StatusOr<Value> value = builder.Take();
  if (value.ok() && !is_whole) return absl::InvalidArgumentError("malformed JSON");
  return value;
}

}  // namespace lowkey::jinja
