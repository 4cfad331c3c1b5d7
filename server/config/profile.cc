#include "server/config/profile.h"

#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_options.h"

namespace lowkey {
namespace {

constexpr Range<double> kRates = {1.0, 1e18};

}  // namespace

std::string ProfileJson(const SelectionProfile& profile) {
  nlohmann::ordered_json json = {{"format", 1}, {"linear", profile.linear}};
  for (const auto& [id, rates] : profile.mechanisms) {
    json["mechanisms"][std::string(MechanismName(id))] = {{"prefill", rates.prefill},
                                                          {"decode", rates.decode}};
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<SelectionProfile> ParseProfile(const std::string& text, const std::string& name) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text, name, 8));
  const JsonFields fields(json, name);
  LK_RETURN_IF_ERROR(fields.RequiredInt("format", {1, 1}).status());
  SelectionProfile profile;
  LK_ASSIGN_OR_RETURN(profile.linear, fields.RequiredNumber("linear", kRates));
  LK_ASSIGN_OR_RETURN(const auto mechanisms, fields.Object("mechanisms"));
  if (!mechanisms.has_value()) return fields.Error("mechanisms", "an object");
  for (const auto& [key, value] : json["mechanisms"].items()) {
    const auto id = ParseMechanism(key);
    if (!id.ok() || !value.is_object()) {
      return mechanisms->Error(key.c_str(), "rates of a mechanism, by its name");
    }
    const JsonFields rates(value, name + ": " + key);
    LK_ASSIGN_OR_RETURN(profile.mechanisms[*id].prefill, rates.RequiredNumber("prefill", kRates));
    LK_ASSIGN_OR_RETURN(profile.mechanisms[*id].decode, rates.RequiredNumber("decode", kRates));
  }
  return profile;
}

}  // namespace lowkey
