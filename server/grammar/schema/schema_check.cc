#include "server/grammar/schema/schema_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/json.h"
#include "engine/base/percents.h"
#include "engine/base/status_macros.h"

namespace lowkey::grammar {
namespace {

// The shape of a keyword's value.
enum class Shape {
  kSchema,
  kSchemas,       // an array of at least one
  kNamedSchemas,  // an object of them
  kTypes,
  kTexts,  // an array
  kText,
  kCount,
  kNumber,
  kValues,  // an array of at least one
  kValue,
  kFalse,  // supported where it is false alone
};

struct Keyword {
  std::string_view name;
  Shape shape;
};

constexpr Keyword kKeywords[] = {
    {"type", Shape::kTypes},
    {"properties", Shape::kNamedSchemas},
    {"required", Shape::kTexts},
    {"additionalProperties", Shape::kSchema},
    {"items", Shape::kSchema},
    {"prefixItems", Shape::kSchemas},
    {"minItems", Shape::kCount},
    {"maxItems", Shape::kCount},
    {"uniqueItems", Shape::kFalse},
    {"enum", Shape::kValues},
    {"const", Shape::kValue},
    {"minLength", Shape::kCount},
    {"maxLength", Shape::kCount},
    {"pattern", Shape::kText},
    {"format", Shape::kText},
    {"minimum", Shape::kNumber},
    {"maximum", Shape::kNumber},
    {"exclusiveMinimum", Shape::kNumber},
    {"exclusiveMaximum", Shape::kNumber},
    {"anyOf", Shape::kSchemas},
    {"oneOf", Shape::kSchemas},
    {"allOf", Shape::kSchemas},
    {"$ref", Shape::kText},
    {"$defs", Shape::kNamedSchemas},
    {"definitions", Shape::kNamedSchemas},
};

constexpr std::string_view kAnnotations[] = {
    "title",     "description", "default",         "examples",         "deprecated", "readOnly",
    "writeOnly", "$comment",    "contentEncoding", "contentMediaType", "$schema",    "$id"};

constexpr std::pair<std::string_view, unsigned> kTypes[] = {
    {"null", kNull},       {"boolean", kBoolean},
    {"integer", kInteger}, {"number", kNumber | kInteger},
    {"string", kString},   {"array", kArray},
    {"object", kObject}};

unsigned TypeOf(const Json& name) {
  if (!name.is_string()) return 0;
  for (const auto& [type, bits] : kTypes) {
    if (name.get_ref<const std::string&>() == type) return bits;
  }
  return 0;
}

// A JSON pointer's step.
std::string Step(std::string_view key) {
  return absl::StrReplaceAll(std::string(key.substr(0, 64)), {{"~", "~0"}, {"/", "~1"}});
}

class Checker {
 public:
  explicit Checker(Budget& budget) : budget_(budget) {}

  absl::Status CheckSchema(const Json& schema, const std::string& place, int depth) {
    LK_RETURN_IF_ERROR(budget_.Charge(1));
    if (schema.is_boolean()) return absl::OkStatus();
    if (!schema.is_object()) {
      return SchemaError(place, absl::StrCat(Short(schema), ", expected a schema"));
    }
    if (depth > kMaxNesting) {
      return SchemaError(place, absl::StrCat("schemas nested deeper than ", kMaxNesting));
    }
    for (const auto& [key, value] : schema.items()) {
      const std::string here = absl::StrCat(place, "/", Step(key));
      if (key == "$id" && depth > 1) {
        return SchemaError(here, "this keyword is supported at the root alone");
      }
      if (IsAnnotation(key)) continue;
      const auto known = std::find_if(std::begin(kKeywords), std::end(kKeywords),
                                      [&key = key](const Keyword& k) { return k.name == key; });
      if (known == std::end(kKeywords)) {
        return SchemaError(here, "this keyword is not supported");
      }
      LK_RETURN_IF_ERROR(CheckValue(known->shape, value, here, depth));
    }
    return absl::OkStatus();
  }

 private:
  static std::string Short(const Json& value) { return ShortText(nlohmann::json(value)); }

  static absl::Status Expect(bool is_right, const Json& value, const std::string& place,
                             std::string_view expected) {
    if (is_right) return absl::OkStatus();
    return SchemaError(place, absl::StrCat(Short(value), ", expected ", std::string(expected)));
  }

  absl::Status CheckValue(Shape shape, const Json& value, const std::string& place, int depth) {
    switch (shape) {
      case Shape::kSchema:
        return CheckSchema(value, place, depth + 1);
      case Shape::kSchemas:
      case Shape::kNamedSchemas:
        return CheckSchemas(shape, value, place, depth);
      case Shape::kTypes:
        return CheckTypes(value, place);
      case Shape::kTexts: {
        LK_RETURN_IF_ERROR(Expect(value.is_array(), value, place, "an array of names"));
        const bool are_texts = std::all_of(value.begin(), value.end(),
                                           [](const Json& item) { return item.is_string(); });
        return Expect(are_texts, value, place, "an array of names");
      }
      case Shape::kText:
        return Expect(value.is_string(), value, place, "a string");
      case Shape::kCount: {
        const bool is_count = value.is_number() && value.get<double>() >= 0 &&
                              value.get<double>() <= kMaxCount &&
                              value.get<double>() == std::floor(value.get<double>());
        return Expect(is_count, value, place, absl::StrCat("a whole number of 0..", kMaxCount));
      }
      case Shape::kNumber:
        return Expect(value.is_number(), value, place, "a number");
      case Shape::kValues:
        return Expect(value.is_array() && !value.empty(), value, place,
                      "an array of at least one value");
      case Shape::kValue:
        return absl::OkStatus();
      case Shape::kFalse:
        break;
    }
    return Expect(value.is_boolean() && !value.get<bool>(), value, place,
                  "false: this keyword is not supported otherwise");
  }

  absl::Status CheckSchemas(Shape shape, const Json& value, const std::string& place, int depth) {
    if (shape == Shape::kSchemas) {
      LK_RETURN_IF_ERROR(Expect(value.is_array() && !value.empty(), value, place,
                                "an array of at least one schema"));
    } else {
      LK_RETURN_IF_ERROR(Expect(value.is_object(), value, place, "an object of schemas"));
    }
    for (const auto& [key, schema] : value.items()) {
      LK_RETURN_IF_ERROR(CheckSchema(schema, absl::StrCat(place, "/", Step(key)), depth + 1));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckTypes(const Json& value, const std::string& place) {
    constexpr std::string_view kExpected =
        "null, boolean, integer, number, string, array, object or an array of these";
    bool is_right = TypeOf(value) != 0;
    if (value.is_array()) {
      is_right = !value.empty() && std::all_of(value.begin(), value.end(),
                                               [](const Json& type) { return TypeOf(type) != 0; });
    }
    return Expect(is_right, value, place, kExpected);
  }

  Budget& budget_;
};

}  // namespace

int64_t WeightOf(const Json& value) {
  if (value.is_string()) {
    return 1 + static_cast<int64_t>(value.get_ref<const std::string&>().size() / 16);
  }
  int64_t weight = 1;
  if (!value.is_structured()) return weight;
  for (const Json& item : value) weight += 1 + WeightOf(item);
  return weight;
}

absl::Status SchemaError(std::string_view place, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("json_schema: ", std::string(place), ": ", std::string(message)));
}

bool IsAnnotation(std::string_view keyword) {
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) !=
         std::end(kAnnotations);
}

unsigned TypesOf(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return kAllTypes;
  if (type->is_string()) return TypeOf(*type);
  unsigned types = 0;
  for (const Json& name : *type) types |= TypeOf(name);
  return types;
}

absl::Status CheckSchema(const Json& schema, const std::string& place, Budget& budget) {
  return Checker(budget).CheckSchema(schema, place, 1);
}

absl::StatusOr<Json> ParseSchema(std::string_view text, Budget& budget) {
  // This parser bounds depth and memory and finds names that come twice; the next keeps the order.
  LK_RETURN_IF_ERROR(ParseJsonObject(text, "json_schema").status());
  Json schema = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!schema.is_object()) return SchemaError("#", "not a JSON object, expected one");
  LK_RETURN_IF_ERROR(Checker(budget).CheckSchema(schema, "#", 1));
  return schema;
}

absl::StatusOr<const Json*> Resolve(const Json& root, const std::string& reference,
                                    const std::string& place) {
  if (!reference.starts_with("#") || (reference.size() > 1 && reference[1] != '/')) {
    return SchemaError(place, absl::StrCat("\"", reference.substr(0, 64),
                                           "\", expected # or #/ and a place in this document"));
  }
  const Json* at = &root;
  if (reference.size() > 1) {
    const std::string pointer = WithoutPercents(std::string_view(reference).substr(2));
    for (const absl::string_view step : absl::StrSplit(pointer, '/')) {
      const std::string key = absl::StrReplaceAll(step, {{"~1", "/"}, {"~0", "~"}});
      size_t index = 0;
      if (at->is_object() && at->contains(key)) {
        at = &(*at)[key];
      } else if (at->is_array() && absl::SimpleAtoi(key, &index) && index < at->size()) {
        at = &(*at)[index];
      } else {
        at = nullptr;
        break;
      }
    }
  }
  if (at == nullptr || !(at->is_object() || at->is_boolean())) {
    return SchemaError(place,
                       absl::StrCat("\"", reference.substr(0, 64), "\": no schema is there"));
  }
  return at;
}

}  // namespace lowkey::grammar
