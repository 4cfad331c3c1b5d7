#ifndef LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_
#define LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_

#include "absl/status/status.h"

namespace lowkey {

// An error speaks of the fields of completions and chats, or of those of /v1/responses.
enum class FieldNames { kChat, kResponses };

// The same error with the field's name as OpenAI's API has it: TextService names the fields of
// lowkey.v1 ("sampling: temperature", "chat.messages[2].role", "max_new_tokens"), and readers that
// both endpoints share name those of chats.
absl::Status WithApiNames(const absl::Status& status, FieldNames names = FieldNames::kChat);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_
