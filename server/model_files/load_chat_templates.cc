#include "server/model_files/load_chat_templates.h"

#include <optional>
#include <string_view>

#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/jinja/lexer.h"

namespace lowkey {
namespace {

// Returns nullopt if the key is absent or its value is no string.
std::optional<std::string> TextAt(const GgufMetadata& metadata, std::string_view key) {
  const absl::StatusOr<std::optional<std::string_view>> text = metadata.String(key);
  if (!text.ok() || !text->has_value()) return std::nullopt;
  return std::string(**text);
}

}  // namespace

ChatTemplates LoadChatTemplates(const ModelFiles& files) {
  if (files.gguf == nullptr) return ChatTemplates::FromDirectory(files.directory);
  const GgufMetadata& metadata = files.gguf->index.metadata;
  const std::optional<std::string> source = TextAt(metadata, "tokenizer.chat_template");
  if (!source.has_value()) return ChatTemplates();
  return ChatTemplates(*source, TextAt(metadata, "tokenizer.chat_template.tool_use"));
}

absl::StatusOr<ChatTemplates> ReadChatTemplate(const std::string& file) {
  LK_ASSIGN_OR_RETURN(const std::string source, ReadWholeFile(file, jinja::kMaxTemplateBytes));
  ChatTemplates templates(source);
  LK_RETURN_IF_ERROR(Prefixed(file, templates.Find(ChatTemplates::Tools::kNone).status()));
  return templates;
}

}  // namespace lowkey
