#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {
namespace {

// Builds values as the parser meets them: no tree of the library's own, whose depth nobody bounds.
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

absl::StatusOr<Value> FromJson(std::string_view json, Arena& arena) {
  LK_RETURN_IF_ERROR(arena.ChargeBytes(json.size()));
  Builder builder(arena);
  const bool is_whole = nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  absl::StatusOr<Value> value = builder.Take();
  if (value.ok() && !is_whole) return absl::InvalidArgumentError("malformed JSON");
  return value;
}

}  // namespace lowkey::jinja
