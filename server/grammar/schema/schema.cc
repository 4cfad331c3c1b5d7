#include "server/grammar/schema/schema.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/schema/formats.h"
#include "server/grammar/schema/json_text.h"
#include "server/grammar/schema/numbers.h"
#include "server/grammar/schema/schema_check.h"
#include "server/grammar/schema/schema_merge.h"
#include "server/grammar/syntax/regex.h"

namespace lowkey::grammar {
namespace {

std::string NameOfPlace(const std::string& place) { return absl::StrCat("json_schema: ", place); }

bool HasAny(const Json& schema, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&schema](const char* key) { return schema.contains(key); });
}

// Returns the types that a plain schema allows. One that names no type but has keywords of some
// types means these types.
unsigned PlainTypes(const Json& plain) {
  if (plain.contains("types") && plain["types"].get<unsigned>() != kAllTypes) {
    return plain["types"].get<unsigned>();
  }
  unsigned types = 0;
  if (HasAny(plain, {"properties", "required", "additionalProperties"})) types |= kObject;
  if (HasAny(plain, {"items", "prefixItems", "minItems", "maxItems"})) types |= kArray;
  if (HasAny(plain, {"minLength", "maxLength", "patterns", "formats"})) types |= kString;
  if (HasAny(plain, {"least", "most"})) types |= kNumber | kInteger;
  return types == 0 ? kAllTypes : types;
}

CountRange CountsOf(const Json& plain, const char* least, const char* most) {
  CountRange range;
  if (plain.contains(least)) range.least = plain[least].get<int>();
  if (plain.contains(most)) range.most = plain[most].get<int>();
  return range;
}

unsigned TypeOfValue(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number_integer()) return kInteger;
  if (value.is_number()) return kNumber;
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, GrammarBuilder& builder, JsonRules& rules, Budget& budget)
      : root_(root), budget_(budget), merger_(root, budget), builder_(builder), rules_(rules) {}

  // Adds a rule of the values that the schema accepts.
  absl::StatusOr<int32_t> AddValues() {
    const int32_t root = builder_.AddRule("json_schema: #");
    LK_ASSIGN_OR_RETURN(const ExpressionPtr value, ReferenceTo("#", "#"));
    // Models begin an answer with a space where a word would.
    LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*Sequence({Optional(Text(" ")), value}), budget_));
    builder_.Define(root, std::move(dfa));
    LK_RETURN_IF_ERROR(DefineWaiting());
    return root;
  }

  // Adds a rule of the objects among these values.
  absl::StatusOr<int32_t> AddObjects() {
    Json objects = Json::object();
    objects["types"] = unsigned{kObject};
    LK_ASSIGN_OR_RETURN(Json plain, merger_.Plain(root_, "#"));
    LK_ASSIGN_OR_RETURN(plain, merger_.Merge(std::move(plain), objects));
    if (plain["types"].get<unsigned>() == 0) {
      return SchemaError("#", "no object satisfies it, expected a schema of objects");
    }
    LK_ASSIGN_OR_RETURN(const ExpressionPtr value, CallOf("objects", std::move(plain), "#"));
    LK_RETURN_IF_ERROR(DefineWaiting());
    return value->rule;
  }

 private:
  // A rule whose body is not compiled yet. Bodies are compiled one after another, however long the
  // chains of references are.
  struct Waiting {
    int32_t rule = 0;
    Json plain;
    std::string place;
  };

  absl::Status DefineWaiting() {
    while (!waiting_.empty()) {
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      LK_ASSIGN_OR_RETURN(const ExpressionPtr body, Body(next.plain, next.place, 0));
      LK_ASSIGN_OR_RETURN(Dfa body_dfa, ToDfa(*body, budget_));
      builder_.Define(next.rule, std::move(body_dfa));
    }
    return absl::OkStatus();
  }

  // Returns the rule that `key` stands for, and whether it is new.
  std::pair<int32_t, bool> RuleOf(const std::string& key, const std::string& place) {
    const auto [found, is_new] = numbers_.try_emplace(key, 0);
    if (is_new) found->second = builder_.AddRule(NameOfPlace(place));
    return {found->second, is_new};
  }

  absl::StatusOr<ExpressionPtr> CallOf(const std::string& key, Json plain,
                                       const std::string& place) {
    LK_RETURN_IF_ERROR(budget_.Charge(16 + static_cast<int64_t>(key.size() / 16)));
    const auto [rule, is_new] = RuleOf(key, place);
    if (is_new) {
      LK_RETURN_IF_ERROR(budget_.ChargeStates(1));
      waiting_.push_back({rule, std::move(plain), place});
    }
    return Call(rule);
  }

  absl::StatusOr<ExpressionPtr> ReferenceTo(const std::string& reference,
                                            const std::string& place) {
    const std::string key = absl::StrCat("reference ", reference);
    if (const auto found = numbers_.find(key); found != numbers_.end()) return Call(found->second);
    LK_ASSIGN_OR_RETURN(const Json* target, merger_.Target(reference, place));
    // A reference to nothing but another one is that one.
    if (target->is_object() && target->size() == 1 && target->contains("$ref")) {
      const auto [rule, is_new] = RuleOf(key, reference);
      LK_RETURN_IF_ERROR(budget_.ChargeStates(1));
      Json plain = Json::object();
      plain["reference"] = (*target)["$ref"];
      if (is_new) waiting_.push_back({rule, std::move(plain), reference});
      return Call(rule);
    }
    LK_ASSIGN_OR_RETURN(Json plain, merger_.Plain(*target, reference));
    return CallOf(key, std::move(plain), reference);
  }

  // Returns the expression of a schema's values: of simple ones themselves, of others a call.
  absl::StatusOr<ExpressionPtr> ValueOf(const Json& schema, const std::string& place) {
    if (schema.is_object() && schema.contains("$ref")) {
      const bool is_alone = std::all_of(
          schema.items().begin(), schema.items().end(),
          [](const auto& item) { return item.key() == "$ref" || IsAnnotation(item.key()); });
      if (is_alone) return ReferenceTo(schema["$ref"].get<std::string>(), place + "/$ref");
    }
    LK_ASSIGN_OR_RETURN(Json plain, merger_.Plain(schema, place));
    constexpr unsigned kSimple = kNull | kBoolean | kInteger | kNumber;
    const bool is_simple = !plain.contains("choices") &&
                           (plain.contains("enum") || plain.contains("never") ||
                            (PlainTypes(plain) & ~kSimple) == 0 || PlainTypes(plain) == kString);
    if (is_simple) return Body(plain, place, 0);
    std::string key = plain.dump();
    return CallOf(key, std::move(plain), place);
  }

  absl::StatusOr<ExpressionPtr> Body(const Json& plain, const std::string& place, int depth) {
    LK_RETURN_IF_ERROR(budget_.Charge(4));
    if (depth > kMaxNesting) {
      return SchemaError(place, absl::StrCat("choices nested deeper than ", kMaxNesting));
    }
    if (plain.contains("reference")) {
      return ReferenceTo(plain["reference"].get<std::string>(), place);
    }
    if (plain.contains("never")) return Nothing();
    if (plain.contains("choices")) return BodyOfChoices(plain, place, depth);
    if (plain.contains("enum")) return BodyOfEnum(plain, place);
    const unsigned types = PlainTypes(plain);
    if (types == kAllTypes) {
      LK_ASSIGN_OR_RETURN(const int32_t value, rules_.Value());
      return Call(value);
    }
    return BodyOfTypes(types, plain, place);
  }

  absl::StatusOr<ExpressionPtr> BodyOfTypes(unsigned types, const Json& plain,
                                            const std::string& place) {
    std::vector<ExpressionPtr> choices;
    if ((types & kNull) != 0) choices.push_back(Text("null"));
    if ((types & kBoolean) != 0) choices.push_back(Choice({Text("true"), Text("false")}));
    if ((types & (kNumber | kInteger)) != 0) {
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), BodyOfNumbers(types, plain, place));
    }
    if ((types & kString) != 0) {
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), BodyOfStrings(plain, place));
    }
    if ((types & kArray) != 0) {
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), BodyOfArrays(plain, place));
    }
    if ((types & kObject) != 0) {
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), BodyOfObjects(plain, place));
    }
    return Choice(std::move(choices));
  }

  // The alternatives stand side by side, so that what they begin with in common is read once.
  absl::StatusOr<ExpressionPtr> BodyOfChoices(const Json& plain, const std::string& place,
                                              int depth) {
    LK_RETURN_IF_ERROR(budget_.Charge(2 * WeightOf(plain)));
    Json base = plain;
    const Json alternatives = plain["choices"][0];
    base["choices"].erase(base["choices"].begin());
    if (base["choices"].empty()) base.erase("choices");
    std::vector<ExpressionPtr> choices;
    for (const Json& alternative : alternatives) {
      LK_ASSIGN_OR_RETURN(Json own, merger_.Plain(alternative, place + "/anyOf"));
      LK_ASSIGN_OR_RETURN(const Json merged, merger_.Merge(std::move(own), base));
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), Body(merged, place, depth + 1));
    }
    return Choice(std::move(choices));
  }

  absl::StatusOr<ExpressionPtr> BodyOfEnum(const Json& plain, const std::string& place) {
    if (HasAny(plain, {"patterns", "formats", "properties", "required", "additionalProperties",
                       "items", "prefixItems", "minItems", "maxItems"})) {
      return SchemaError(place,
                         "enum or const beside keywords of strings, arrays or objects is not "
                         "supported, expected type, length or bounds beside it at most");
    }
    const CountRange length = CountsOf(plain, "minLength", "maxLength");
    const auto fits = [&](const Json& value) {
      if ((plain.value("types", unsigned{kAllTypes}) & TypeOfValue(value)) == 0) return false;
      if (!value.is_string()) return true;
      const auto& text = value.get_ref<const std::string&>();
      const auto n = std::count_if(text.begin(), text.end(),
                                   [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
      return n >= length.least && n <= length.most;
    };
    std::vector<ExpressionPtr> texts, numbers;
    for (const Json& value : plain["enum"]) {
      if (fits(value)) (value.is_number() ? numbers : texts).push_back(Text(value.dump()));
    }
    if (!numbers.empty() && HasAny(plain, {"least", "most"})) {
      LK_ASSIGN_OR_RETURN(const ExpressionPtr bounded,
                          BodyOfNumbers(kNumber | kInteger, plain, place));
      LK_ASSIGN_OR_RETURN(const Dfa within, ToDfa(*bounded, budget_));
      LK_ASSIGN_OR_RETURN(const Dfa named, ToDfa(*Choice(std::move(numbers)), budget_));
      LK_ASSIGN_OR_RETURN(Dfa both, Combine(named, within, Combination::kBoth, budget_));
      numbers = {Automaton(std::move(both))};
    }
    texts.insert(texts.end(), numbers.begin(), numbers.end());
    return Choice(std::move(texts));
  }

  absl::StatusOr<ExpressionPtr> BodyOfNumbers(unsigned types, const Json& plain,
                                              const std::string& place) {
    NumberRange range;
    range.is_integer = (types & kNumber) == 0;
    const auto add = [&plain](const char* key, std::vector<NumberBound>& bounds) {
      if (!plain.contains(key)) return;
      for (const Json& bound : plain[key]) {
        bounds.push_back({bound[0].get<std::string>(), bound[1].get<bool>()});
      }
    };
    add("least", range.least);
    add("most", range.most);
    absl::StatusOr<ExpressionPtr> numbers = NumbersOf(range, budget_);
    if (numbers.ok()) return numbers;
    return SchemaError(place, std::string(numbers.status().message()));
  }

  absl::StatusOr<ExpressionPtr> BodyOfStrings(const Json& plain, const std::string& place) {
    const CountRange length = CountsOf(plain, "minLength", "maxLength");
    if (length.least > length.most) return Nothing();
    if (!HasAny(plain, {"patterns", "formats"})) {
      if (!HasAny(plain, {"minLength", "maxLength"})) {
        LK_ASSIGN_OR_RETURN(const int32_t string, rules_.String());
        return Call(string);
      }
      const auto [rule, is_new] =
          RuleOf(absl::StrCat("string ", length.least, " ", length.most), place);
      if (is_new) {
        Dfa dfa = StringDfa(length);
        LK_RETURN_IF_ERROR(budget_.ChargeStates(static_cast<int64_t>(dfa.states.size())));
        builder_.Define(rule, std::move(dfa));
      }
      return Call(rule);
    }
    std::string key = "string";
    for (const char* keyword : {"patterns", "formats"}) {
      if (plain.contains(keyword)) absl::StrAppend(&key, " ", keyword, plain[keyword].dump());
    }
    absl::StrAppend(&key, " ", length.least, " ", length.most);
    const auto [rule, is_new] = RuleOf(key, place);
    if (is_new) {
      LK_ASSIGN_OR_RETURN(Dfa dfa, PatternDfa(plain, place));
      builder_.Define(rule, std::move(dfa));
    }
    return Call(rule);
  }

  absl::StatusOr<Dfa> PatternDfa(const Json& plain, const std::string& place) {
    std::vector<ExpressionPtr> all;
    const std::string name = NameOfPlace(place + "/pattern");
    if (plain.contains("patterns")) {
      for (const Json& pattern : plain["patterns"]) {
        LK_ASSIGN_OR_RETURN(all.emplace_back(),
                            ParseRegex(pattern.get<std::string>(), name, Match::kSearch));
      }
    }
    if (plain.contains("formats")) {
      for (const Json& format : plain["formats"]) {
        const auto& text = format.get_ref<const std::string&>();
        const std::optional<std::string> pattern = PatternOfFormat(text);
        if (!pattern.has_value()) {
          return SchemaError(place + "/format",
                             absl::StrCat("\"", text.substr(0, 64), "\" is not supported"));
        }
        LK_ASSIGN_OR_RETURN(all.emplace_back(), ParseRegex(*pattern, name, Match::kSearch));
      }
    }
    if (HasAny(plain, {"minLength", "maxLength"})) {
      all.push_back(CharsBetween(CountsOf(plain, "minLength", "maxLength")));
    }
    LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*Quoted(all[0]), budget_));
    for (size_t i = 1; i < all.size(); ++i) {
      LK_ASSIGN_OR_RETURN(const Dfa other, ToDfa(*Quoted(all[i]), budget_));
      LK_ASSIGN_OR_RETURN(dfa, Combine(dfa, other, Combination::kBoth, budget_));
    }
    return dfa;
  }

  // Returns the rule of a schema's values.
  absl::StatusOr<int32_t> ValueRule(const Json& schema, const std::string& place) {
    LK_ASSIGN_OR_RETURN(const ExpressionPtr value, ValueOf(schema, place));
    if (value->kind == Expression::Kind::kCall) return value->rule;
    const auto [rule, is_new] = RuleOf("value " + schema.dump(), place);
    if (is_new) {
      LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*value, budget_));
      builder_.Define(rule, std::move(dfa));
    }
    return rule;
  }

  absl::StatusOr<ExpressionPtr> BodyOfArrays(const Json& plain, const std::string& place) {
    std::vector<int32_t> prefix;
    if (plain.contains("prefixItems")) {
      for (const Json& item : plain["prefixItems"]) {
        LK_ASSIGN_OR_RETURN(prefix.emplace_back(), ValueRule(item, place + "/prefixItems"));
      }
    }
    std::optional<int32_t> rest;
    const Json items = plain.contains("items") ? plain["items"] : Json(true);
    if (!items.is_boolean() || items.get<bool>()) {
      LK_ASSIGN_OR_RETURN(rest, ValueRule(items, place + "/items"));
    }
    const CountRange length = CountsOf(plain, "minItems", "maxItems");
    LK_ASSIGN_OR_RETURN(Dfa dfa, rules_.ArrayDfa(prefix, rest, length));
    const int32_t rule = builder_.AddRule(NameOfPlace(place));
    builder_.Define(rule, std::move(dfa));
    return Call(rule);
  }

  absl::StatusOr<ExpressionPtr> BodyOfObjects(const Json& plain, const std::string& place) {
    absl::flat_hash_set<std::string> required, known;
    std::vector<std::string> in_order, names;
    if (plain.contains("required")) {
      for (const Json& name : plain["required"]) {
        if (required.insert(name.get<std::string>()).second) in_order.push_back(name);
      }
    }
    std::vector<Member> members;
    const Json rest =
        plain.contains("additionalProperties") ? plain["additionalProperties"] : Json(true);
    const auto add = [&](const std::string& name, const Json& schema) -> absl::Status {
      Member member;
      LK_ASSIGN_OR_RETURN(member.key, rules_.Key(Text(Json(name).dump())));
      const std::string where = absl::StrCat(place, "/properties/", name.substr(0, 64));
      LK_ASSIGN_OR_RETURN(member.value, ValueOf(schema, where));
      member.is_required = required.contains(name);
      members.push_back(std::move(member));
      known.insert(name);
      names.push_back(name);
      return absl::OkStatus();
    };
    if (plain.contains("properties")) {
      for (const auto& [name, schema] : plain["properties"].items()) {
        LK_RETURN_IF_ERROR(add(name, schema));
      }
    }
    for (const std::string& name : in_order) {
      if (!known.contains(name)) LK_RETURN_IF_ERROR(add(name, rest));
    }
    const bool takes_others = !rest.is_boolean() || rest.get<bool>();
    if (takes_others) {
      LK_ASSIGN_OR_RETURN(const ExpressionPtr key, OtherKey(names));
      Member others;
      LK_ASSIGN_OR_RETURN(others.key, rules_.Key(key));
      LK_ASSIGN_OR_RETURN(others.value, ValueOf(rest, place + "/additionalProperties"));
      members.push_back(std::move(others));
    }
    return rules_.Braces(std::move(members), takes_others);
  }

  absl::StatusOr<ExpressionPtr> OtherKey(const std::vector<std::string>& names) {
    const auto [rule, is_new] = RuleOf("keys " + Json(names).dump(), "other keys");
    if (is_new) {
      LK_ASSIGN_OR_RETURN(Dfa dfa, OtherKeysDfa(names, budget_));
      builder_.Define(rule, std::move(dfa));
    }
    return Call(rule);
  }

  const Json& root_;
  Budget& budget_;
  SchemaMerger merger_;
  GrammarBuilder& builder_;
  JsonRules& rules_;
  absl::flat_hash_map<std::string, int32_t> numbers_;
  std::deque<Waiting> waiting_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(std::string_view text,
                                                                 Budget& budget) {
  LK_ASSIGN_OR_RETURN(const Json schema, ParseSchema(text, budget));
  GrammarBuilder builder;
  JsonRules rules(builder, budget);
  LK_ASSIGN_OR_RETURN(const int32_t root,
                      SchemaCompiler(schema, builder, rules, budget).AddValues());
  return builder.Finish(root, budget);
}

absl::StatusOr<int32_t> AddObjectSchema(std::string_view text, GrammarBuilder& builder,
                                        JsonRules& rules, Budget& budget) {
  LK_ASSIGN_OR_RETURN(const Json schema, ParseSchema(text, budget));
  return SchemaCompiler(schema, builder, rules, budget).AddObjects();
}

}  // namespace lowkey::grammar
