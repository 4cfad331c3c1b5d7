#include "server/api/openai/models.h"

#include <optional>

#include "engine/base/percents.h"
#include "engine/base/status_macros.h"
#include "server/api/http/json_writer.h"
#include "server/api/openai/model_names.h"

namespace lowkey {
namespace {

constexpr std::string_view kPath = "/v1/models/";

// The mechanism that runs for an id: its own, or the server's default.
std::string MechanismOf(const TextService& service, const ModelChoice& choice) {
  if (choice.mechanism.has_value()) return *choice.mechanism;
  const Defaults& defaults = service.options().defaults;
  if (defaults.selection.has_value()) return std::string(kAutoMechanism);
  return std::string(MechanismName(defaults.attention.mechanism));
}

// Nullopt: it was not measured.
std::optional<double> PerplexityRatioOf(const TextService& service, const std::string& name) {
  for (const MechanismInfo& mechanism : service.engine().mechanisms()) {
    const auto& points = mechanism.perplexity_ratios.points();
    if (MechanismName(mechanism.id) == name && !points.empty()) return points.back().ratio;
  }
  return std::nullopt;
}

void WriteModel(const TextService& service, int64_t created, const std::string& id,
                JsonWriter& writer) {
  const std::string mechanism =
      MechanismOf(service, ResolveModel(service, id).value_or(ModelChoice()));
  writer.BeginObject().Key("id").Text(id).Key("object").Text("model");
  writer.Key("created").Int(created).Key("owned_by").Text("lowkey");
  writer.Key("max_model_len").Int(service.engine().limits().context_tokens);
  writer.Key("lowkey").BeginObject().Key("mechanism").Text(mechanism);
  const std::optional<double> ratio = PerplexityRatioOf(service, mechanism);
  writer.Key("perplexity_ratio");
  ratio.has_value() ? writer.Double(*ratio) : writer.Null();
  const auto& chat_template = service.options().chat_templates.Find(ChatTemplates::Tools::kNone);
  writer.Key("chat").Bool(chat_template.ok()).EndObject().EndObject();
}

}  // namespace

std::string ListModelsJson(const TextService& service, int64_t created) {
  std::string json;
  JsonWriter writer(json);
  writer.BeginObject().Key("object").Text("list").Key("data").BeginArray();
  for (const std::string& id : ListModelIds(service)) {
    WriteModel(service, created, id, writer);
  }
  writer.EndArray().EndObject();
  return json;
}

absl::StatusOr<std::string> ModelJson(const TextService& service, int64_t created,
                                      const std::string& path) {
  const std::string id = WithoutPercents(std::string_view(path).substr(kPath.size()));
  LK_RETURN_IF_ERROR(ResolveModel(service, id).status());
  std::string json;
  JsonWriter writer(json);
  WriteModel(service, created, id, writer);
  return json;
}

}  // namespace lowkey
