#ifndef LOWKEY_SERVER_MODEL_FILES_LOAD_CHAT_TEMPLATES_H_
#define LOWKEY_SERVER_MODEL_FILES_LOAD_CHAT_TEMPLATES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/loader/model_files.h"
#include "tokenizer/chat/template_files.h"

namespace lowkey {

// Reads the chat templates of a model from the metadata of a GGUF file, or from the files of a
// directory. Never fails: a request with messages gets the error of an unusable template.
ChatTemplates LoadChatTemplates(const ModelFiles& files);

// Reads a template from `file`, to use instead of the model's. NOT_FOUND: no such file;
// FAILED_PRECONDITION: the template is unusable (names line and construct); INVALID_ARGUMENT: too
// large.
absl::StatusOr<ChatTemplates> ReadChatTemplate(const std::string& file);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_MODEL_FILES_LOAD_CHAT_TEMPLATES_H_
