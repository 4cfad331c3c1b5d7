#include "tokenizer/chat/template_files.h"

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/json.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/settings.h"

namespace lowkey {
namespace {

using nlohmann::json;

absl::StatusOr<ChatTemplate> ParseUsable(const std::string& source) {
  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (parsed.ok()) return parsed;
  // The server lacks something, whatever the request.
  return absl::FailedPreconditionError(parsed.status().message());
}

struct Sources {
  absl::StatusOr<std::string> standard;
  std::optional<std::string> with_tools = std::nullopt;
};

absl::Status Missing() {
  return absl::FailedPreconditionError(
      "messages: the model has no chat template; send text, or give the server one with "
      "--chat-template FILE");
}

// Reads "chat_template": a string, or a list of {"name", "template"}.
Sources ReadChatTemplate(const std::string& path, const json& value) {
  const absl::Status malformed = absl::FailedPreconditionError(absl::StrCat(
      path, ": chat_template: expected a string or a list of objects with name and template"));
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) return {malformed};
  Sources sources{Missing()};
  for (const json& entry : value) {
    const bool is_named = entry.is_object() && entry.contains("name") &&
                          entry.contains("template") && entry["name"].is_string() &&
                          entry["template"].is_string();
    if (!is_named) return {malformed};
    if (entry["name"] == "default") sources.standard = entry["template"].get<std::string>();
    if (entry["name"] == "tool_use") sources.with_tools = entry["template"].get<std::string>();
  }
  return sources;
}

// Returns nullopt when there is no such file, or it has no template.
std::optional<Sources> ReadJsonFile(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadWholeFile(path, kMaxSettingsFileBytes);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  if (!bytes.ok()) return Sources{bytes.status()};
  const absl::StatusOr<json> document = ParseJsonObject(*bytes, path);
  if (!document.ok()) return Sources{document.status()};
  const json* value = JsonFields(*document, path).Find("chat_template");
  if (value == nullptr) return std::nullopt;
  return ReadChatTemplate(path, *value);
}

Sources ReadDirectory(const std::string& directory) {
  const absl::StatusOr<std::string> jinja =
      ReadWholeFile(directory + "/chat_template.jinja", jinja::kMaxTemplateBytes);
  if (!absl::IsNotFound(jinja.status())) return {jinja};
  for (const char* name : {"/tokenizer_config.json", "/chat_template.json"}) {
    if (std::optional<Sources> sources = ReadJsonFile(directory + name)) return *sources;
  }
  return {Missing()};
}

}  // namespace

ChatTemplates::ChatTemplates() : standard_(Missing()) {}

ChatTemplates::ChatTemplates(const std::string& source,
                             const std::optional<std::string>& with_tools)
    : standard_(ParseUsable(source)) {
  if (with_tools.has_value()) with_tools_ = ParseUsable(*with_tools);
}

ChatTemplates ChatTemplates::FromDirectory(const std::string& directory) {
  const Sources sources = ReadDirectory(directory);
  ChatTemplates templates;
  if (sources.standard.ok()) {
    templates.standard_ = ParseUsable(*sources.standard);
  } else {
    templates.standard_ = absl::FailedPreconditionError(sources.standard.status().message());
  }
  if (sources.with_tools.has_value()) templates.with_tools_ = ParseUsable(*sources.with_tools);
  return templates;
}

const absl::StatusOr<ChatTemplate>& ChatTemplates::Find(Tools tools) const {
  return tools == Tools::kSome && with_tools_.has_value() ? *with_tools_ : standard_;
}

absl::Status ChatTemplates::Fault() const {
  if (!standard_.ok() && standard_.status() != Missing()) return standard_.status();
  return with_tools_.has_value() ? with_tools_->status() : absl::OkStatus();
}

}  // namespace lowkey
