#ifndef LOWKEY_TOKENIZER_CHAT_TEMPLATE_FILES_H_
#define LOWKEY_TOKENIZER_CHAT_TEMPLATE_FILES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/chat/chat_template.h"

namespace lowkey {

// The chat templates of a model. Whoever sends messages learns why a template cannot be used: a
// model without one, or with one that is not understood, still serves plain text.
class ChatTemplates {
 public:
  // No template: Find gives FAILED_PRECONDITION, which says what to do.
  ChatTemplates();
  // One template for everything, or another one for conversations with tools.
  explicit ChatTemplates(const std::string& source,
                         const std::optional<std::string>& with_tools = std::nullopt);
  // Reads a model directory: chat_template.jinja, else tokenizer_config.json's chat_template
  // (one, or several with names, of which "default" and "tool_use" count), else
  // chat_template.json's. A file of another shape is the template's error.
  static ChatTemplates FromDirectory(const std::string& directory);

  // The template for a conversation, with tools or without. FAILED_PRECONDITION: there is none, or
  // it cannot be used (the message says why).
  enum class Tools { kNone, kSome };
  const absl::StatusOr<ChatTemplate>& Find(Tools tools) const;
  // Returns why a template that is there cannot be used; OK also where there is none.
  absl::Status Fault() const;

 private:
  absl::StatusOr<ChatTemplate> standard_;
  std::optional<absl::StatusOr<ChatTemplate>> with_tools_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_CHAT_TEMPLATE_FILES_H_
