#include "server/api/openai/model_names.h"

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kMaxShownBytes = 128;

bool HasMechanism(const TextService& service, const std::string& name) {
  if (name == kAutoMechanism) return true;
  for (const MechanismInfo& mechanism : service.engine().mechanisms()) {
    if (MechanismName(mechanism.id) == name) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<ModelChoice> ResolveModel(const TextService& service, const std::string& id) {
  if (service.IsModelName(id)) return ModelChoice();
  const size_t at = id.rfind('@');
  if (at != std::string::npos && service.IsModelName(id.substr(0, at)) &&
      HasMechanism(service, id.substr(at + 1))) {
    return ModelChoice{id.substr(at + 1)};
  }
  return absl::NotFoundError(
      absl::StrCat("model: \"", id.substr(0, kMaxShownBytes), "\" is not served, expected \"",
                   service.options().model_name, "\" or one of GET /v1/models"));
}

std::vector<std::string> ListModelIds(const TextService& service) {
  std::vector<std::string> ids = {service.options().model_name};
  const std::vector<std::string>& aliases = service.options().model_aliases;
  ids.insert(ids.end(), aliases.begin(), aliases.end());
  for (const MechanismInfo& mechanism : service.engine().mechanisms()) {
    ids.push_back(
        absl::StrCat(service.options().model_name, "@", std::string(MechanismName(mechanism.id))));
  }
  return ids;
}

}  // namespace lowkey
