#ifndef LOWKEY_SERVER_LOAD_CHAT_TEMPLATES_H_
#define LOWKEY_SERVER_LOAD_CHAT_TEMPLATES_H_

#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/chat/template_files.h"

namespace lowkey {

// The chat templates of a model: of a .gguf file or a directory with one, by its metadata; of any
// other directory, by its files. Never fails: what is wrong with them is told to whoever sends
// messages.
ChatTemplates LoadChatTemplates(const std::string& model_path);

// The template in `file`, instead of the model's. NOT_FOUND: no such file; FAILED_PRECONDITION: it
// cannot be used (names line and construct); INVALID_ARGUMENT: too large.
absl::StatusOr<ChatTemplates> ReadChatTemplate(const std::string& file);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_LOAD_CHAT_TEMPLATES_H_
