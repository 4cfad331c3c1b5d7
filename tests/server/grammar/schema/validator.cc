#include "tests/server/grammar/schema/validator.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "absl/strings/str_cat.h"

namespace lowkey::grammar {
namespace {

using Json = nlohmann::json;

bool HasType(const std::string& type, const Json& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") {
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  return type == "array" ? value.is_array() : value.is_object();
}

std::string CheckType(const Json& type, const Json& value) {
  bool is_right = type.is_string() && HasType(type.get<std::string>(), value);
  if (type.is_array()) {
    is_right = std::any_of(type.begin(), type.end(), [&value](const Json& name) {
      return HasType(name.get<std::string>(), value);
    });
  }
  return is_right ? "" : "type";
}

std::string CheckNumber(const Json& schema, double value) {
  if (schema.contains("minimum") && value < schema["minimum"]) return "minimum";
  if (schema.contains("maximum") && value > schema["maximum"]) return "maximum";
  if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) {
    return "exclusiveMinimum";
  }
  if (schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"]) {
    return "exclusiveMaximum";
  }
  return "";
}

// A character each, so that counts of a pattern count characters.
std::wstring Wide(const std::string& text) {
  std::wstring wide;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      wide.push_back(byte);
    } else if (byte >= 0xC0) {
      wide.push_back(byte & (byte < 0xE0 ? 0x1F : byte < 0xF0 ? 0x0F : 0x07));
    } else {
      wide.back() = (wide.back() << 6) | (byte & 0x3F);
    }
  }
  return wide;
}

std::string CheckString(const Json& schema, const std::string& value) {
  const auto n = std::count_if(value.begin(), value.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  if (schema.contains("minLength") && n < schema["minLength"]) return "minLength";
  if (schema.contains("maxLength") && n > schema["maxLength"]) return "maxLength";
  if (schema.contains("pattern")) {
    const std::wregex pattern(Wide(schema["pattern"].get<std::string>()));
    if (!std::regex_search(Wide(value), pattern)) return "pattern";
  }
  return "";
}

std::string CheckArray(const Json& root, const Json& schema, const Json& value) {
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return "minItems";
  if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return "maxItems";
  const Json prefix = schema.value("prefixItems", Json::array());
  for (size_t i = 0; i < value.size(); ++i) {
    const Json item = i < prefix.size() ? prefix[i] : schema.value("items", Json(true));
    if (std::string why = WhyInvalid(root, item, value[i]); !why.empty()) {
      return absl::StrCat("item ", i, ": ", why);
    }
  }
  return "";
}

std::string CheckObject(const Json& root, const Json& schema, const Json& value) {
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return absl::StrCat("required ", name.dump());
  }
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    const Json& own = properties.contains(name) ? properties[name]
                                                : schema.value("additionalProperties", Json(true));
    if (std::string why = WhyInvalid(root, Json(own), member); !why.empty()) {
      return absl::StrCat(name, ": ", why);
    }
  }
  return "";
}

std::string CheckCombined(const Json& root, const Json& schema, const Json& value) {
  if (schema.contains("$ref")) {
    const std::string reference = schema["$ref"];
    const Json& target = root.at(Json::json_pointer(reference.substr(1)));
    if (std::string why = WhyInvalid(root, target, value); !why.empty()) return why;
  }
  for (const Json& part : schema.value("allOf", Json::array())) {
    if (std::string why = WhyInvalid(root, part, value); !why.empty()) return why;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key)) continue;
    const bool is_any = std::any_of(schema[key].begin(), schema[key].end(), [&](const Json& part) {
      return WhyInvalid(root, part, value).empty();
    });
    if (!is_any) return key;
  }
  return "";
}

}  // namespace

std::string WhyInvalid(const Json& root, const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
  if (schema.contains("const") && value != schema["const"]) return "const";
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return "enum";
  }
  std::string why = schema.contains("type") ? CheckType(schema["type"], value) : "";
  if (why.empty()) why = CheckCombined(root, schema, value);
  if (!why.empty()) return why;
  if (value.is_number()) return CheckNumber(schema, value.get<double>());
  if (value.is_string()) return CheckString(schema, value.get<std::string>());
  if (value.is_array()) return CheckArray(root, schema, value);
  return value.is_object() ? CheckObject(root, schema, value) : "";
}

}  // namespace lowkey::grammar
