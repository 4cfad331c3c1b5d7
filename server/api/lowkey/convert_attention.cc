// Converts lowkey.v1.AttentionOptions to our structs and back, finding fields by the option's name.
#include <string>

#include "engine/base/status_macros.h"
#include "server/api/lowkey/convert_request.h"

namespace lowkey {
namespace {

using google::protobuf::FieldDescriptor;

const FieldDescriptor* FieldOf(const AttentionOption& option) {
  const FieldDescriptor* field =
      v1::AttentionOptions::descriptor()->FindFieldByName(std::string(option.name));
  LK_CHECK(field != nullptr);
  return field;
}

OptionValue GetField(const v1::AttentionOptions& proto, const AttentionOption& option) {
  const google::protobuf::Reflection& reflection = *proto.GetReflection();
  const FieldDescriptor* field = FieldOf(option);
  if (option.kind == OptionKind::kInteger) return reflection.GetInt32(proto, field);
  if (option.kind == OptionKind::kSwitch) return reflection.GetBool(proto, field);
  return reflection.GetString(proto, field);
}

void SetField(const AttentionOption& option, const OptionValue& value,
              v1::AttentionOptions& proto) {
  const google::protobuf::Reflection& reflection = *proto.GetReflection();
  const FieldDescriptor* field = FieldOf(option);
  if (const auto* number = std::get_if<int32_t>(&value)) {
    reflection.SetInt32(&proto, field, *number);
  } else if (const auto* is_on = std::get_if<bool>(&value)) {
    reflection.SetBool(&proto, field, *is_on);
  } else {
    reflection.SetString(&proto, field, std::get<std::string>(value));
  }
}

}  // namespace

AttentionChoice FromProto(const v1::AttentionOptions& proto) {
  AttentionChoice attention;
  if (proto.has_mechanism()) attention.mechanism = proto.mechanism();
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (!proto.GetReflection()->HasField(proto, FieldOf(option))) continue;
    attention.options.emplace(option.name, GetField(proto, option));
  }
  if (proto.has_objective()) attention.objective = proto.objective();
  attention.allowed.assign(proto.allowed().begin(), proto.allowed().end());
  if (proto.has_allow_approximate()) attention.allow_approximate = proto.allow_approximate();
  if (proto.has_max_perplexity_ratio()) {
    attention.max_perplexity_ratio = proto.max_perplexity_ratio();
  }
  return attention;
}

v1::AttentionOptions ToProto(const AttentionChoice& attention) {
  v1::AttentionOptions proto;
  if (attention.mechanism.has_value()) proto.set_mechanism(*attention.mechanism);
  for (const AttentionOption& option : AttentionOptionTable()) {
    const auto it = attention.options.find(option.name);
    if (it != attention.options.end()) SetField(option, it->second, proto);
  }
  if (attention.objective.has_value()) proto.set_objective(*attention.objective);
  for (const std::string& name : attention.allowed) proto.add_allowed(name);
  if (attention.allow_approximate.has_value()) {
    proto.set_allow_approximate(*attention.allow_approximate);
  }
  if (attention.max_perplexity_ratio.has_value()) {
    proto.set_max_perplexity_ratio(*attention.max_perplexity_ratio);
  }
  return proto;
}

v1::AttentionOptions ToProto(const Defaults& defaults) {
  v1::AttentionOptions proto;
  proto.set_mechanism(std::string(MechanismName(defaults.attention.mechanism)));
  for (const AttentionOption& option : AttentionOptionTable()) {
    SetField(option, option.get(defaults.attention), proto);
  }
  if (!defaults.selection.has_value()) return proto;
  const SelectionRules& rules = *defaults.selection;
  proto.set_mechanism(std::string(kAutoMechanism));
  proto.set_objective(std::string(NameOf(rules.objective)));
  proto.set_allow_approximate(rules.allow_approximate);
  if (rules.max_perplexity_ratio.has_value()) {
    proto.set_max_perplexity_ratio(*rules.max_perplexity_ratio);
  }
  for (Mechanism id : rules.allowed) proto.add_allowed(std::string(MechanismName(id)));
  return proto;
}

}  // namespace lowkey
