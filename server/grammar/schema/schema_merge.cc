#include "server/grammar/schema/schema_merge.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/schema/formats.h"

namespace lowkey::grammar {
namespace {

const Json& Anything() {
  static const auto* const anything = new Json(true);
  return *anything;
}

bool IsAnything(const Json& schema) {
  return schema == Anything() || (schema.is_object() && schema.empty());
}

const Json& At(const Json& object, const char* key, const Json& otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : *found;
}

// Returns the schema that `object` has for a property.
const Json& PropertyOf(const Json& object, const std::string& name) {
  const auto properties = object.find("properties");
  if (properties != object.end()) {
    const auto found = properties->find(name);
    if (found != properties->end()) return *found;
  }
  return At(object, "additionalProperties", Anything());
}

const Json& ItemOf(const Json& array, size_t i) {
  const auto prefix = array.find("prefixItems");
  if (prefix != array.end() && i < prefix->size()) return (*prefix)[i];
  return At(array, "items", Anything());
}

// Copies one keyword into the plain form.
void CopyKeyword(const std::string& key, const Json& value, Json& plain) {
  static const auto* const dropped =
      new absl::flat_hash_set<std::string>{"$defs", "definitions", "$ref", "allOf", "uniqueItems"};
  if (IsAnnotation(key) || dropped->contains(key)) return;
  if (key == "format" && !IsFormat(value.get<std::string>())) return;
  if (key == "type") {
    return;  // the caller's
  } else if (key == "const") {
    Json values = Json::array({value});
    if (!plain.contains("enum")) plain["enum"] = std::move(values);
  } else if (key == "pattern" || key == "format") {
    plain[key + "s"].push_back(value);
  } else if (key == "anyOf" || key == "oneOf") {
    plain["choices"].push_back(value);
  } else if (key == "minimum" || key == "exclusiveMinimum") {
    plain["least"].push_back(Json::array({value.dump(), key != "minimum"}));
  } else if (key == "maximum" || key == "exclusiveMaximum") {
    plain["most"].push_back(Json::array({value.dump(), key != "maximum"}));
  } else if (key.starts_with("min") || key.starts_with("max")) {
    plain[key] = static_cast<int>(value.get<double>());
  } else {
    plain[key] = value;
  }
}

}  // namespace

Json SchemaMerger::Both(const Json& a, const Json& b) {
  if (IsAnything(a)) return b;
  if (IsAnything(b) || a == b) return a;
  const auto list_of = [](const Json& schema) {
    const bool is_list = schema.is_object() && schema.size() == 1 && schema.contains("allOf");
    return is_list ? schema["allOf"] : Json::array({schema});
  };
  Json all = list_of(a);  // each of them once already
  for (const Json& item : list_of(b)) {
    n_uncharged_ += static_cast<int64_t>(all.size());
    if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
  }
  Json both;
  both["allOf"] = std::move(all);
  return both;
}

void SchemaMerger::MergeObjects(Json& a, const Json& b) {
  if (!b.contains("properties") && !b.contains("additionalProperties") && !b.contains("required")) {
    return;
  }
  const Json more = At(b, "additionalProperties", Anything());
  if (b.contains("properties") || b.contains("additionalProperties") || a.contains("properties")) {
    Json properties = Json::object();
    if (a.contains("properties")) {
      for (const auto& [name, schema] : a["properties"].items()) {
        properties[name] = Both(schema, PropertyOf(b, name));
      }
    }
    if (b.contains("properties")) {
      for (const auto& [name, schema] : b["properties"].items()) {
        if (!properties.contains(name)) properties[name] = Both(PropertyOf(a, name), schema);
      }
    }
    if (!properties.empty()) a["properties"] = std::move(properties);
  }
  Json rest = Both(At(a, "additionalProperties", Anything()), more);
  if (!IsAnything(rest)) a["additionalProperties"] = std::move(rest);
  if (!b.contains("required")) return;
  for (const Json& name : b["required"]) a["required"].push_back(name);
}

void SchemaMerger::MergeArrays(Json& a, const Json& b) {
  size_t n = 0;
  for (const Json* schema : {&std::as_const(a), &b}) {
    const auto prefix = schema->find("prefixItems");
    if (prefix != schema->end()) n = std::max(n, prefix->size());
  }
  Json prefix = Json::array();
  for (size_t i = 0; i < n; ++i) prefix.push_back(Both(ItemOf(a, i), ItemOf(b, i)));
  Json rest = Both(At(a, "items", Anything()), At(b, "items", Anything()));
  if (n > 0) a["prefixItems"] = std::move(prefix);
  if (!IsAnything(rest)) a["items"] = std::move(rest);
}

void SchemaMerger::MergeEnums(Json& a, const Json& b) {
  if (!b.contains("enum")) return;
  if (!a.contains("enum")) {
    a["enum"] = b["enum"];
    return;
  }
  Json shared = Json::array();
  for (const Json& value : a["enum"]) {
    if (std::find(b["enum"].begin(), b["enum"].end(), value) != b["enum"].end()) {
      shared.push_back(value);
    }
  }
  a["enum"] = std::move(shared);
}

absl::StatusOr<Json> SchemaMerger::Merge(Json a, const Json& b) {
  const auto n_of = [](const Json& schema, const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? int64_t{0} : static_cast<int64_t>(found->size());
  };
  // Schemas within `a` are copied where b's are joined to them.
  for (const char* key : {"properties", "items", "prefixItems", "additionalProperties"}) {
    if (a.contains(key)) LK_RETURN_IF_ERROR(budget_.Charge(WeightOf(a[key])));
  }
  // Putting members together compares their names, each comparison a fraction of a step.
  if (b.contains("properties") || b.contains("additionalProperties") || b.contains("required")) {
    const int64_t n_names = n_of(a, "properties") + n_of(b, "properties");
    LK_RETURN_IF_ERROR(budget_.Charge(n_names * n_names / 16));
  }
  // Members are found by comparing names one by one.
  LK_RETURN_IF_ERROR(
      budget_.Charge(8 + 2 * WeightOf(b) + n_of(a, "properties") * (1 + n_of(b, "properties")) +
                     n_of(b, "properties") + n_of(a, "enum") * (1 + n_of(b, "enum"))));
  a["types"] = At(a, "types", Json(kAllTypes)).get<unsigned>() &
               At(b, "types", Json(kAllTypes)).get<unsigned>();
  if (b.contains("never")) a["never"] = true;
  MergeEnums(a, b);
  for (const char* key : {"minLength", "minItems"}) {
    if (b.contains(key)) a[key] = std::max(At(a, key, Json(0)).get<int>(), b[key].get<int>());
  }
  for (const char* key : {"maxLength", "maxItems"}) {
    if (b.contains(key)) {
      a[key] = std::min(At(a, key, Json(kMaxCount)).get<int>(), b[key].get<int>());
    }
  }
  for (const char* key : {"patterns", "formats", "choices", "least", "most"}) {
    if (!b.contains(key)) continue;
    for (const Json& item : b[key]) {
      Json& list = a[key];
      if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
    }
  }
  MergeObjects(a, b);
  MergeArrays(a, b);
  LK_RETURN_IF_ERROR(budget_.Charge(std::exchange(n_uncharged_, 0)));
  return a;
}

absl::StatusOr<const Json*> SchemaMerger::Target(const std::string& reference,
                                                 const std::string& place) {
  const auto [found, is_new] = targets_.try_emplace(reference, nullptr);
  if (!is_new) return found->second;
  LK_ASSIGN_OR_RETURN(const Json* target, Resolve(root_, reference, place));
  // A reference may lead to what was no schema where it stands, such as a default.
  LK_RETURN_IF_ERROR(CheckSchema(*target, reference, budget_));
  targets_[reference] = target;
  return target;
}

absl::StatusOr<Json> SchemaMerger::Plain(const Json& schema, const std::string& place, int depth) {
  LK_RETURN_IF_ERROR(budget_.Charge(WeightOf(schema)));
  if (depth > kMaxNesting) {
    return SchemaError(place, absl::StrCat("references and allOf lead through more than ",
                                           kMaxNesting, " schemas, expected fewer"));
  }
  Json plain = Json::object();
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) plain["never"] = true;
    return plain;
  }
  if (schema.contains("type")) plain["types"] = TypesOf(schema);
  for (const auto& [key, value] : schema.items()) CopyKeyword(key, value, plain);
  if (schema.contains("const") && schema.contains("enum")) {
    Json only = Json::object();
    only["enum"] = Json::array({schema["const"]});
    plain["enum"] = schema["enum"];
    LK_ASSIGN_OR_RETURN(plain, Merge(std::move(plain), only));
  }
  const auto merge = [&](const Json& other, const std::string& where) -> absl::Status {
    LK_ASSIGN_OR_RETURN(const Json more, Plain(other, where, depth + 1));
    LK_ASSIGN_OR_RETURN(plain, Merge(std::move(plain), more));
    return absl::OkStatus();
  };
  if (schema.contains("$ref")) {
    const std::string reference = schema["$ref"].get<std::string>();
    LK_ASSIGN_OR_RETURN(const Json* target, Target(reference, place + "/$ref"));
    LK_RETURN_IF_ERROR(merge(*target, reference));
  }
  if (schema.contains("allOf")) {
    for (const Json& part : schema["allOf"]) LK_RETURN_IF_ERROR(merge(part, place + "/allOf"));
  }
  return plain;
}

}  // namespace lowkey::grammar
